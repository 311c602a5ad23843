from __future__ import annotations

import math

import pytest

from atgrpo.training.callbacks.dr_mas import DrMAS
from atgrpo.training.callbacks.grpo import GRPO
from tests.rollout.helpers import make_turn
from tests.training.callbacks.estimators import advantages, score

MEAN_ONLY = DrMAS(scale_by_std=False)


def test_each_agent_has_its_own_mean_and_spread() -> None:
    turns = [make_turn(agent="a", branch=i, credit=c) for i, c in enumerate([1.0, 0.0])]
    turns += [make_turn(agent="b", branch=i, credit=c) for i, c in enumerate([10.0, 14.0])]
    # a: mean .5, std 1 / sqrt 2; b: mean 12, std 4 / sqrt 2
    half = 1 / math.sqrt(2)
    assert advantages(DrMAS(eps=0.0), *turns) == pytest.approx([half, -half, -half, half])
    # Pooled, trajectory 1 wins for both agents because b's rewards are larger: (1 + 10) / 2 against 14 / 2.
    assert advantages(GRPO(scale_by_std=False), *turns) == [-0.75, 0.75, -0.75, 0.75]


def test_an_agent_that_acts_often_in_a_trajectory_has_one_vote_there() -> None:
    often = [make_turn(branch=1, turn=t, credit=0.0) for t in range(9)]
    assert advantages(MEAN_ONLY, make_turn(branch=0, credit=1.0), *often) == [0.5] + [-0.5] * 9


def test_a_trajectory_without_the_agent_is_not_in_its_baseline() -> None:
    a = [make_turn(agent="a", branch=i, credit=c) for i, c in enumerate([0.0, 3.0, 6.0])]
    b = [make_turn(agent="b", branch=i, credit=c) for i, c in enumerate([0.0, 3.0])]
    assert advantages(MEAN_ONLY, *a, *b) == [-3.0, 0.0, 3.0, -1.5, 1.5]


def test_an_unjudged_step_takes_out_its_own_agents_part_of_the_trajectory_only() -> None:
    turns = score(
        MEAN_ONLY,
        make_turn(agent="a", branch=0, credit=1.0),
        make_turn(agent="a", branch=1, credit=0.0),
        make_turn(agent="a", branch=2, credit=9.0),
        make_turn(agent="a", branch=2, turn=1, credit=None),
        make_turn(agent="b", branch=2, credit=5.0),
    )
    assert [turn.advantage for turn in turns] == [0.5, -0.5, None, None, 0.0]
    assert [turn.rewards.credit for turn in turns] == [1.0, 0.0, None, None, 5.0]
    assert [turn.group for turn in turns] == [0, 0, None, None, 1]
