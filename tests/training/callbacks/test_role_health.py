from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from atgrpo.rollout.collate import Batching, make_minibatches
from atgrpo.training.callbacks.role_health import RoleHealth, gradient_shares
from atgrpo.training.datamodule import Iteration
from atgrpo.types import Action, StepResult
from tests.cli.letters import Letters
from tests.rollout.helpers import make_rollout, make_turn
from tests.training.runs import fit

SHARED = {"a": "p", "b": "p"}
# Trajectory 0: 2 tokens of a, 4 of b. Trajectory 1: 3 tokens of a.
TURNS = [
    make_turn((50, 51), (1,), agent="a", branch=0, advantage=0.5),
    make_turn((52, 53, 54), (1,), agent="a", branch=1, advantage=-1.0),
    make_turn((60, 61, 62, 63), (2,), agent="b", branch=0, advantage=0.25),
]
MODES: list[tuple[dict[str, Any], float]] = [
    ({}, 4 / 5),  # a: 2 x .5 + 3 x 1 = 4, b: 4 x .25 = 1
    ({"aggregation": "sequence_mean"}, 6 / 7),  # a: .5 + 1, b: .25
    ({"aggregation": "trajectory_mean"}, 7 / 8),  # a: 2/6 x .5 + 3/3 x 1, b: 4/6 x .25
    ({"aggregation": "constant", "constant_length": 8}, 4 / 5),
]


@pytest.mark.parametrize(("settings", "share"), MODES, ids=lambda value: str(value))
def test_shares_by_hand(settings: dict[str, Any], share: float) -> None:
    assert gradient_shares(TURNS, Batching(**settings), SHARED)["p"] == pytest.approx({"a": share, "b": 1 - share})


@pytest.mark.parametrize(("settings", "share"), MODES, ids=lambda value: str(value))
def test_a_share_is_what_the_minibatches_weigh(settings: dict[str, Any], share: float) -> None:
    plan = make_minibatches([make_rollout(*TURNS)], ["p"], Batching(**settings), seed=0)
    pull = [(batch.weights * batch.advantages.abs() * (batch.token_ids < 60)).sum() for batch in plan]
    total = [(batch.weights * batch.advantages.abs()).sum() for batch in plan]
    torch.testing.assert_close(sum(pull) / sum(total), torch.tensor(share))


def test_what_is_not_in_the_loss_pulls_at_nothing() -> None:
    more = [
        make_turn(agent="b", advantage=None),
        make_turn((), agent="b", advantage=9.0),
        make_turn(agent="b", advantage=9.0, cut=True),
        make_turn(agent="c", advantage=9.0, policy="alone"),
    ]
    agents = {**SHARED, "c": "alone"}
    assert gradient_shares([*TURNS, *more], Batching(mask_truncated=True), agents) == {
        "p": pytest.approx({"a": 0.8, "b": 0.2})
    }


def test_a_role_that_never_plays_has_nothing_and_where_nothing_pulls_there_are_no_shares() -> None:
    assert gradient_shares(TURNS[:2], Batching(), SHARED) == {"p": {"a": 1.0, "b": 0.0}}
    assert gradient_shares([make_turn(agent="a", advantage=0.0)], Batching(), SHARED) == {}
    assert gradient_shares([], Batching(), SHARED) == {}


class Watched:
    """Iterations in which a's share of the one policy is what is asked for; None: nothing is learned."""

    def __init__(self, health: RoleHealth, trainable: tuple[str, ...] = ("p",)) -> None:
        self.health, self.number, self.logger = health, 0, Mock()
        self.module = SimpleNamespace(trainable=trainable, log_dict=Mock())

    def see(self, *shares: float | None) -> None:
        for share in shares:
            a, b = (0.0, 0.0) if share is None else (share, 1 - share)
            turns = [make_turn(agent="a", advantage=a), make_turn(agent="b", advantage=-b)]
            latest = Iteration(self.number, [make_rollout(*turns)])
            data = SimpleNamespace(latest=latest, batching=Batching())
            self.health.on_train_epoch_end(SimpleNamespace(datamodule=data, logger=self.logger), self.module)
            self.number += 1


def test_capture_is_said_once_until_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(RoleHealth(agents=SHARED, patience=3))
    watched.see(0.95, 0.95, 0.9, 0.95, 0.95)  # .9 is not above .9
    assert capsys.readouterr().out == ""
    watched.see(0.96)
    out = capsys.readouterr().out
    assert out.startswith(
        "warning: a has had over 90% of the gradient of policy p for 3 iterations in a row (now 96.0%)"
    )
    assert out.count("\n") == 1
    watched.see(0.97, 0.98, 0.99, 1.0)
    assert capsys.readouterr().out == ""
    watched.see(0.5, 0.95, 0.95, 0.95)
    assert capsys.readouterr().out.count("warning: a has") == 1


def test_a_row_is_of_one_role_and_goes_on_over_iterations_without_learning(capsys: pytest.CaptureFixture[str]) -> None:
    watched = Watched(RoleHealth(agents=SHARED, patience=3))
    watched.see(0.95, 0.95, 0.05, None, 0.05)
    assert capsys.readouterr().out == ""
    watched.see(0.05)
    assert capsys.readouterr().out.startswith("warning: b has had")


def test_a_row_goes_on_over_a_resume(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (RoleHealth(agents=SHARED, patience=3) for _ in range(2))
    Watched(first).see(0.95, 0.95)
    second.load_state_dict(first.state_dict())
    Watched(second).see(0.95)
    assert "for 3 iterations in a row" in capsys.readouterr().out


def test_a_frozen_policy_has_no_shares() -> None:
    watched = Watched(RoleHealth(agents=SHARED, patience=1), trainable=())
    watched.see(1.0)
    assert watched.health.rows == {}
    watched.logger.log_metrics.assert_not_called()


@pytest.mark.parametrize("settings", [{"threshold": 0.0}, {"threshold": 1.0}, {"patience": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected more than 0 and less than 1, 1 or more"):
        RoleHealth(agents=SHARED, **settings)


class OneIsPaid(Letters):
    """The reasoner is paid for late letters of the alphabet; what the tool writes does not matter."""

    def step(self, agent: str, action: Action) -> StepResult:
        return StepResult(0.0, float(sum(map(ord, action.value))) if agent == "reasoner" else 0.0, done=False)


def test_a_run_in_which_one_of_two_roles_is_paid_shows_and_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["agents.reasoner=a", f"env._target_={__name__}.OneIsPaid", "iterations=4", "role_health.patience=2"]
    run = fit(tmp_path, *shared)
    logged = EventAccumulator(str(tmp_path)).Reload()
    for role, share in (("tool", 0.0), ("reasoner", 1.0)):
        tag = f"policy/a/{role}/gradient_share"
        assert [(event.step, event.value) for event in logged.Scalars(tag)] == [(i, share) for i in range(4)]
        assert run.trainer.callback_metrics[tag] == share
    assert (
        capsys.readouterr().out.count("warning: reasoner has had over 90% of the gradient of policy a for 2 iter") == 1
    )
