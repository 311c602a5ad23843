"""The estimators that differ only in their groups, each against numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.agent_wise import AgentWise
from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.training.callbacks.dr_grpo import DrGRPO
from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.training.callbacks.grpo_pooled import PooledGRPO
from atgrpo.training.callbacks.rloo import RLOO
from atgrpo.training.callbacks.turn_wise import TurnWise
from atgrpo.types import Rollout, Turn
from tests.rollout.helpers import make_rollout, make_turn, play

HALF_ROOT_3 = math.sqrt(3) / 2  # [1, 0, 1, 0]: mean 1/2, std sqrt(1/3)
ALL = [ATGRPO(), AgentWise(), TurnWise(), PooledGRPO(), GRPO(), RLOO(), DrGRPO()]


def score(callback: AdvantageCallback, rollouts: Sequence[Rollout]) -> list[Turn]:
    scored = callback.on_rollout_end(None, None, rollouts)
    assert [len(r.turns) for r in scored] == [len(r.turns) for r in rollouts]
    return [turn for rollout in scored for turn in rollout.turns]


def advantages(callback: AdvantageCallback, turns: Sequence[Turn]) -> list[float | None]:
    return [turn.advantage for turn in score(callback, [make_rollout(*turns)])]


# The public report on pooled turns: (trajectory, turn, reward). A tool call makes a second turn with another prompt.
REPORT = [
    make_turn(branch=trajectory, turn=turn, prompt=(1, turn), credit=reward)
    for trajectory, turn, reward in [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 0.0), (2, 0, 1.0), (2, 1, 1.0), (3, 0, 0.0)]
]
PER_TURN = [HALF_ROOT_3, 0.0, -HALF_ROOT_3, HALF_ROOT_3, 0.0, -HALF_ROOT_3]
# mean 2/3, squares 4 / 9 + 2 * 4 / 9, std sqrt(4 / 15)
POOLED = [0.6454972, 0.6454972, -1.2909944, 0.6454972, 0.6454972, -1.2909944]
ONE_VOTE = [HALF_ROOT_3, HALF_ROOT_3, -HALF_ROOT_3, HALF_ROOT_3, HALF_ROOT_3, -HALF_ROOT_3]


@pytest.mark.parametrize(
    ("callback", "expected", "groups"),
    [
        (ATGRPO(eps=0.0), PER_TURN, [0, 1, 0, 0, 1, 0]),
        (TurnWise(eps=0.0), PER_TURN, [0, 1, 0, 0, 1, 0]),
        (AgentWise(eps=0.0), POOLED, [0] * 6),
        (PooledGRPO(eps=0.0), POOLED, [0] * 6),
        (GRPO(eps=0.0), ONE_VOTE, [0] * 6),
        (DrGRPO(), [0.5, 0, -0.5, 0.5, 0, -0.5], [0, 1, 0, 0, 1, 0]),
        # 1 - mean(0, 1, 0), 0 - mean(1, 1, 0)
        (RLOO(), [2 / 3, 0, -2 / 3, 2 / 3, 0, -2 / 3], [0, 1, 0, 0, 1, 0]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, AdvantageCallback) else "",
)
def test_the_reported_six_samples(callback: AdvantageCallback, expected: list[float], groups: list[int]) -> None:
    turns = score(callback, [make_rollout(*REPORT)])
    assert [turn.advantage for turn in turns] == pytest.approx(expected, abs=1e-6)
    assert [turn.group for turn in turns] == groups


ROLES = [make_turn(agent="a", branch=i, credit=c) for i, c in enumerate([1.0, 0.0, 1.0, 0.0])]
ROLES += [make_turn(agent="b", branch=i, credit=c) for i, c in enumerate([10.0, 10.0, 10.0, 6.0])]


def test_roles_are_not_pooled_where_the_key_tells_them_apart() -> None:
    apart = [HALF_ROOT_3, -HALF_ROOT_3] * 2 + [0.5, 0.5, 0.5, -1.5]
    assert advantages(ATGRPO(eps=0.0), ROLES) == pytest.approx(apart)
    assert advantages(AgentWise(eps=0.0), ROLES) == pytest.approx(apart)
    # All eight together: mean 4.75, squares 2 * 3.75^2 + 2 * 4.75^2 + 3 * 5.25^2 + 1.25^2 = 157.5
    pooled = [(r - 4.75) / math.sqrt(157.5 / 7) for r in (1, 0, 1, 0, 10, 10, 10, 6)]
    assert advantages(TurnWise(eps=0.0), ROLES) == pytest.approx(pooled)
    assert advantages(PooledGRPO(eps=0.0), ROLES) == pytest.approx(pooled)


def test_the_same_prompt_drawn_twice_is_two_groups_and_numbers_run_on() -> None:
    rollouts = [
        make_rollout(*(make_turn(tree=t, branch=i, credit=c) for i, c in enumerate(credits)), tree=t)
        for t, credits in enumerate([(1.0, 0.0), (5.0, 3.0)])
    ]
    for callback in (ATGRPO(scale_by_std=False), GRPO(scale_by_std=False), PooledGRPO(scale_by_std=False)):
        turns = score(callback, rollouts)
        assert [turn.advantage for turn in turns] == [0.5, -0.5, 1.0, -1.0]
        assert [turn.group for turn in turns] == [0, 0, 1, 1]


def test_playouts_do_not_join_the_groups_of_the_path() -> None:
    path = [make_turn(turn=1, branch=i, credit=c, selected=False) for i, c in enumerate([1.0, 0.0])]
    playouts = [make_turn(turn=1, branch=i, credit=9.0, node=1, selected=False) for i in range(2)]
    assert advantages(DrGRPO(), path + playouts) == [0.5, -0.5, 0.0, 0.0]


@pytest.mark.parametrize("callback", ALL, ids=lambda c: type(c).__name__)
def test_a_lone_or_uniform_group_is_exactly_zero(callback: AdvantageCallback) -> None:
    assert advantages(callback, [make_turn(credit=5.0)]) == [0.0]
    assert advantages(callback, [make_turn(branch=i, credit=0.1) for i in range(3)]) == [0.0] * 3


@pytest.mark.parametrize("callback", ALL, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("credits", [[1.0, 1.0, None, 1.0], [None, -1.0, -1.0, None], [None, None]])
def test_a_missing_credit_is_excluded_and_never_zero(callback: AdvantageCallback, credits: list[float | None]) -> None:
    turns = score(callback, [make_rollout(*(make_turn(branch=i, credit=c) for i, c in enumerate(credits)))])
    assert [turn.advantage for turn in turns] == [None if c is None else 0.0 for c in credits]
    assert [turn.group is None for turn in turns] == [c is None for c in credits]


def test_a_crashed_judge_leaves_the_others_baseline_alone() -> None:
    turns = [make_turn(branch=i, credit=c) for i, c in enumerate([1.0, 0.0, None, 1.0])]
    third = 1 / math.sqrt(3)
    assert advantages(ATGRPO(eps=0.0), turns) == pytest.approx([third, -2 * third, None, third])


@pytest.mark.parametrize("callback", ALL, ids=lambda c: type(c).__name__)
def test_the_order_of_the_rows_changes_nothing(callback: AdvantageCallback) -> None:
    turns = ROLES + [make_turn(turn=1, branch=i, credit=float(i % 3)) for i in range(4)]
    before = {turn.key: turn.advantage for turn in score(callback, [make_rollout(*turns)])}
    shuffled = Random(2).sample(turns, len(turns))
    after = {turn.key: turn.advantage for turn in score(callback, [make_rollout(*shuffled)])}
    assert after == pytest.approx(before)


@pytest.mark.parametrize("callback", ALL, ids=lambda c: type(c).__name__)
def test_nothing_sampled_is_nothing_scored(callback: AdvantageCallback) -> None:
    assert score(callback, [make_rollout(), make_rollout(tree=1)]) == []


def test_eps_is_added_to_the_std_on_every_path() -> None:
    # Half the distance 5e-6, std 1e-5 / sqrt 2, plus 1e-6
    pair = [make_turn(branch=i, credit=c) for i, c in enumerate([1.0, 1.00001])]
    for callback in (kind(eps=1e-6) for kind in (ATGRPO, AgentWise, TurnWise, PooledGRPO, GRPO)):
        assert advantages(callback, pair) == pytest.approx([-0.6194968, 0.6194968], abs=1e-5)


def test_one_agent_and_one_turn_make_at_grpo_equal_to_grpo() -> None:
    sampler = ParallelSampler(turns=1, trajectories=4)
    replies = iter(["1/0", "0/.5", "2/.1", "?/0", "3/0", "3/0", "4/0", "5/.5"])
    rollouts = [
        play(sampler, lambda request, i: next(replies), agents={"a": "pa"}, tree=tree).rollout for tree in range(2)
    ]
    turns = score(ATGRPO(), rollouts)
    assert turns == score(GRPO(), rollouts)
    assert [turn.advantage is None for turn in turns] == [False, False, False, True] + [False] * 4
    assert any(turn.advantage for turn in turns)
