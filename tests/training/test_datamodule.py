from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from torch import nn

from atgrpo.rollout.collate import Batching
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.training.datamodule import RolloutDataModule
from atgrpo.training.filters import GroupFilter
from atgrpo.training.loss import LossSettings
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.schedule import Schedule
from atgrpo.types import Rollout, Sample
from tests.rollout.helpers import make_rollout, make_turn

SAMPLES = [Sample(str(i), "?", "!") for i in range(5)]


class FakeTeam:
    """Every other tree has equal rewards; the second turn of trajectory 1 cannot be judged if ``crash``."""

    def __init__(self, crash: bool = False) -> None:
        self.engine = SimpleNamespace(exact=True, stats=dict, sleep=Mock())
        self.push = Mock()
        self.crash = crash
        self.played: list[list[Sample]] = []

    def play(
        self, samples: Sequence[Sample], sampler: Any, *, seed: int, trees: Sequence[int], on_done: Any
    ) -> list[Rollout]:
        self.played.append(list(samples))
        return [self.tree(number) for number in trees]

    def tree(self, number: int) -> Rollout:
        last = 1.0 if number % 2 else 0.0
        turns = [make_turn(tree=number, branch=i, credit=c) for i, c in enumerate([1.0, 1.0, last])]
        if self.crash:
            turns.append(make_turn(tree=number, branch=1, turn=1, credit=None))
        return make_rollout(*turns, tree=number)


def datamodule(team: FakeTeam, *callbacks: AdvantageCallback, **settings: Any) -> RolloutDataModule:
    module = MultiPolicyModule(
        policies={},
        optimizers={},
        schedule=Schedule(),
        total_steps=1,
        loss=LossSettings(),
        clip_norm=1.0,
        temperature=1.0,
    )
    module.policies["p"] = nn.Identity()
    module.policies["p"].trainable = True
    data = RolloutDataModule(
        data=SimpleNamespace(split=lambda name: SAMPLES),
        start_team=lambda policies: team,
        sampler=None,
        prompts_per_iteration=3,
        batching=Batching(),
        group_filter=GroupFilter(**settings),
        seed=0,
    )
    trainer: Any = SimpleNamespace(callbacks=list(callbacks), lightning_module=module, precision="32-true")
    data.trainer = trainer
    return data


class Careless(ATGRPO):
    def __init__(self, advantage: float | None) -> None:
        super().__init__()
        self.advantage = advantage

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        first, *others = super().on_rollout_end(trainer, pl_module, rollouts)
        return [replace(first, turns=(replace(first.turns[0], advantage=self.advantage), *first.turns[1:])), *others]


@pytest.mark.parametrize("advantage", [None, math.nan, math.inf])
def test_a_turn_left_without_a_finite_advantage_is_an_error(advantage: float | None) -> None:
    with pytest.raises(
        ValueError, match=rf"Careless gave TurnKey.* the advantage {advantage}, expected a finite number"
    ):
        datamodule(FakeTeam(), Careless(advantage)).train_dataloader()


def test_the_engine_gets_the_weights_before_it_plays_and_sleeps_afterwards() -> None:
    team = FakeTeam()
    data = datamodule(team, ATGRPO())
    for played in (1, 2):
        with data.playing():
            assert (team.push.call_count, team.engine.sleep.call_count) == (played, played - 1)
        assert team.engine.sleep.call_count == played


@pytest.mark.parametrize(("precision", "exact"), [("32-true", True), ("bf16-mixed", False)])
def test_an_engine_is_exact_only_for_a_trainer_in_float32(precision: str, exact: bool) -> None:
    data = datamodule(FakeTeam(), ATGRPO())
    trainer: Any = data.trainer
    trainer.precision = precision
    with data.playing():
        assert trainer.lightning_module.exact_engine is exact


def test_the_iteration_in_flight_is_not_finished() -> None:
    data = datamodule(FakeTeam(), ATGRPO())
    assert data.finished == 0
    loader = data.train_dataloader()
    list(loader)  # handed out is not learned
    assert data.finished == 0 and not data.between_iterations
    loader.done = len(loader)
    assert data.finished == 1 and data.between_iterations
    seen: list[int] = []
    data._team.play = lambda *a, **k: seen.append(data.finished) or FakeTeam().play(*a, **k)  # type: ignore[union-attr]
    data.train_dataloader()
    assert (seen, data.finished) == ([1], 1)


@pytest.mark.parametrize("estimator", [ATGRPO(), GRPO()])
def test_a_reward_that_could_not_be_judged_does_not_stop_the_run(estimator: AdvantageCallback) -> None:
    data = datamodule(FakeTeam(crash=True), estimator)
    data.train_dataloader()
    assert [rollout.turns[-1].advantage for rollout in data.latest.rollouts] == [None] * 3


@pytest.mark.parametrize("callbacks", [[], [ATGRPO(), GRPO()]])
def test_there_is_exactly_one_estimator(callbacks: list[AdvantageCallback]) -> None:
    with pytest.raises(ValueError, match=f"got {len(callbacks)} advantage callbacks, expected exactly one"):
        datamodule(FakeTeam(), *callbacks).train_dataloader()


def test_asked_twice_it_plays_once() -> None:
    team = FakeTeam()
    data = datamodule(team, ATGRPO())
    assert data.train_dataloader() is data.train_dataloader()
    assert [len(samples) for samples in team.played] == [3]
    assert team.push.call_count == 1


def test_replacements_are_further_prompts_and_no_tree_or_group_gets_a_number_twice() -> None:
    team = FakeTeam()
    data = datamodule(team, ATGRPO(), mode="replace", cap=2.0)
    data.train_dataloader()
    # Trees 0 and 2 teach something, 1 does not; 3 does not either, 4 does.
    assert [len(samples) for samples in team.played] == [3, 1, 1]
    assert {s.id for samples in team.played for s in samples} == {s.id for s in SAMPLES}
    assert [rollout.tree for rollout in data.latest.rollouts] == [0, 1, 2, 3, 4]
    assert [{turn.group for turn in r.turns} for r in data.latest.rollouts] == [{0}, {1}, {2}, {3}, {4}]
