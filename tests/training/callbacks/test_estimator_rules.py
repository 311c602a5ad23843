"""What holds for every estimator, on rollouts of the samplers that it is made for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from atgrpo.rollout.endpoint import EndpointSampler
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.samplers import Sampler
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.training.callbacks.c3 import C3
from atgrpo.training.callbacks.dr_mas import DrMAS
from atgrpo.training.callbacks.gigpo import GiGPO
from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.training.callbacks.magrpo import MAGRPO
from atgrpo.training.callbacks.rae import RAE
from atgrpo.training.callbacks.reinforce_pp import ReinforcePlusPlus
from atgrpo.training.callbacks.tree_grpo import TreeGRPO
from atgrpo.training.callbacks.treerl import TreeRL
from atgrpo.types import Request, Rewards, Rollout, Turn
from tests.rollout.helpers import play
from tests.training.callbacks.estimators import keyed

TREE = TreeSampler(turns=2, branches=3, credit="continuation")
PARALLEL = ParallelSampler(turns=2, trajectories=4, credit="return_to_go")
CASES: list[tuple[type[AdvantageCallback], Sampler]] = [
    (MAGRPO, TREE),
    (C3, TREE),
    (TreeRL, TREE),
    (TreeGRPO, TREE),
    (TreeRL, replace(TREE, credit="backup")),
    (TreeGRPO, replace(TREE, train_continuations=True)),
    (TreeRL, replace(TREE, train_continuations=True)),
    (ReinforcePlusPlus, TREE),
    (ReinforcePlusPlus, PARALLEL),
    (DrMAS, PARALLEL),
    (GiGPO, PARALLEL),
    (GRPO, PARALLEL),
    (RAE, PARALLEL),
]
EVERY = pytest.mark.parametrize(("kind", "sampler"), CASES, ids=lambda value: getattr(value, "__name__", ""))
RELATIVE = pytest.mark.parametrize(
    ("kind", "sampler"),
    [case for case in CASES if case[0] is not RAE],
    ids=lambda value: getattr(value, "__name__", ""),
)


def rollouts(sampler: Sampler, seed: int = 0) -> list[Rollout]:
    """Two trees of one sample, with few different rewards, so that some are equal, and some steps without any."""
    random = Random(seed)

    def script(request: Request, i: int) -> str:
        gain = "?" if random.random() < 0.05 else random.choice(["0", "1", "2"])
        return f"{gain}/{random.choice(['0', '.5'])}"

    return [play(sampler, script, tree=tree).rollout for tree in range(2)]


def changed(old: Sequence[Rollout], credit: Any) -> list[Rollout]:
    def of(turn: Turn) -> Turn:
        return turn if turn.rewards.credit is None else replace(turn, rewards=credit(turn.rewards))

    return [replace(r, turns=tuple(map(of, r.turns))) for r in old]


def score(kind: type[AdvantageCallback], played: Sequence[Rollout]) -> list[Rollout]:
    return kind().on_rollout_end(None, None, played)


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_each_turn_has_a_group_and_a_finite_advantage_or_else_no_credit(
    kind: type[AdvantageCallback], sampler: Sampler, seed: int
) -> None:
    played = rollouts(sampler, seed)
    scored = score(kind, played)
    assert [[turn.key for turn in r.turns] for r in scored] == [[turn.key for turn in r.turns] for r in played]
    for before, after in zip(played, scored, strict=True):
        for old, new in zip(before.turns, after.turns, strict=True):
            if new.rewards.credit is None:
                assert (new.advantage, new.group) == (None, None)
            else:
                assert new.group is not None and new.advantage is not None and math.isfinite(new.advantage)
                assert old.rewards.credit == new.rewards.credit


@EVERY
def test_the_order_of_candidates_trajectories_and_trees_changes_nothing(
    kind: type[AdvantageCallback], sampler: Sampler
) -> None:
    played = rollouts(sampler)
    random = Random(1)
    mixed = []
    for r in reversed(played):
        # Steps stay in order; what was sampled for one of them does not.
        turns = sorted(random.sample(r.turns, len(r.turns)), key=lambda t: (t.key.turn, t.key.agent))
        mixed.append(replace(r, turns=tuple(turns)))
    assert keyed(score(kind, mixed)) == pytest.approx(keyed(score(kind, played)), abs=1e-9)


@RELATIVE
def test_a_constant_added_to_every_reward_changes_nothing(kind: type[AdvantageCallback], sampler: Sampler) -> None:
    played = rollouts(sampler)
    more = changed(played, lambda rewards: replace(rewards, credit=rewards.credit + 8.0))
    assert keyed(score(kind, more)) == pytest.approx(keyed(score(kind, played)), abs=1e-6)


@RELATIVE
@pytest.mark.parametrize("reward", [0.1, -1e8 / 3])
def test_equal_rewards_are_exactly_zero(kind: type[AdvantageCallback], sampler: Sampler, reward: float) -> None:
    equal = changed(rollouts(sampler), lambda _: Rewards(reward, 0.1, reward))
    assert {turn.advantage for r in score(kind, equal) for turn in r.turns} - {None} == {0.0}


@RELATIVE
def test_a_group_of_one_is_exactly_zero(kind: type[AdvantageCallback], sampler: Sampler) -> None:
    single = replace(sampler, turns=1, **{"branches" if isinstance(sampler, TreeSampler) else "trajectories": 1})  # type: ignore[type-var]
    agents = {"a": "pa"}
    played = [play(single, lambda request, i: "3/.1", agents=agents).rollout]
    assert [turn.advantage for r in score(kind, played) for turn in r.turns] == [0.0]


@EVERY
def test_nothing_sampled_is_nothing_scored(kind: type[AdvantageCallback], sampler: Sampler) -> None:
    [empty] = [replace(r, turns=()) for r in rollouts(sampler)[:1]]
    assert score(kind, [empty]) == [empty]


@EVERY
def test_rollouts_of_the_other_sampler_are_refused(kind: type[AdvantageCallback], sampler: Sampler) -> None:
    if kind is ReinforcePlusPlus:
        return
    other = PARALLEL if isinstance(sampler, TreeSampler) else TREE
    expected = "trees: use sampler=tree" if other is PARALLEL else "trajectories: use sampler=parallel"
    with pytest.raises(ValueError, match=f"advantage {kind.__name__} got .*, expected {expected}"):
        score(kind, rollouts(other))


@EVERY
def test_the_sampler_it_is_made_for_fits(kind: type[AdvantageCallback], sampler: Sampler) -> None:
    kind().check_sampler(sampler)


@pytest.mark.parametrize(
    ("kind", "sampler", "said"),
    [
        (GRPO, TREE, "GRPO got a tree, expected trajectories: use sampler=parallel"),
        (RAE, TREE, "RAE got a tree, expected trajectories: use sampler=parallel"),
        (C3, PARALLEL, "C3 got trajectories, expected a tree: use sampler=tree"),
        (C3, replace(TREE, credit="backup"), "C3 got sampler.credit=backup, expected continuation"),
        (MAGRPO, replace(TREE, credit="step"), "got sampler.credit=step, expected continuation or backup"),
        (TreeRL, replace(TREE, credit="backup", order="parallel"), "got sampler.order=parallel, expected sequence"),
    ],
)
def test_a_sampler_that_does_not_fit_is_one_line(kind: type[AdvantageCallback], sampler: Sampler, said: str) -> None:
    with pytest.raises(ValueError, match=f"^advantage .*{said}$"):
        kind().check_sampler(sampler)


def test_estimators_without_needs_fit_any_sampler() -> None:
    for sampler in (TREE, PARALLEL, EndpointSampler(trajectories=2), object()):
        ATGRPO().check_sampler(sampler)
    GRPO().check_sampler(EndpointSampler(trajectories=2))
