from __future__ import annotations

import math

import pytest

from atgrpo.training.callbacks.gigpo import GiGPO
from atgrpo.training.callbacks.grpo import GRPO
from tests.rollout.helpers import make_turn
from tests.training.callbacks.estimators import advantages, score

HERE, THERE = (1, 2), (1, 3)
TURNS = [
    make_turn(branch=0, turn=0, prompt=HERE, credit=4.0),
    make_turn(branch=0, turn=1, prompt=THERE, credit=0.0),
    make_turn(branch=1, turn=0, prompt=HERE, credit=0.0),
    make_turn(branch=1, turn=1, prompt=HERE, credit=8.0),  # back where it was
]


def test_a_step_is_also_compared_with_the_steps_from_the_same_state() -> None:
    # Episodes: 2 and 4, so -1 and 1. From HERE: 4, 0 and 8, so 0, -4 and 4; from THERE: one, so 0.
    turns = score(GiGPO(scale_by_std=False), *TURNS)
    assert [turn.advantage for turn in turns] == [-1.0, -1.0, -3.0, 5.0]
    assert [turn.group for turn in turns] == [0] * 4
    assert advantages(GiGPO(weight=0.5, scale_by_std=False), *TURNS) == [-1.0, -1.0, -1.0, 3.0]


def test_both_levels_are_divided_by_their_own_spread() -> None:
    half = 1 / math.sqrt(2)  # episodes: std sqrt 2; steps: std 4
    assert advantages(GiGPO(eps=0.0), *TURNS) == pytest.approx([-half, -half, half - 1, half + 1])


def test_without_weight_it_is_grpo() -> None:
    assert advantages(GiGPO(weight=0.0), *TURNS) == advantages(GRPO(), *TURNS)


def test_a_state_is_one_agents_and_one_prompt_instances() -> None:
    turns = [make_turn(agent=a, branch=b, prompt=HERE, credit=c) for a, b, c in [("a", 0, 0.0), ("b", 0, 8.0)]]
    assert advantages(GiGPO(), *turns) == [0.0, 0.0]
    trees = [make_turn(tree=t, prompt=HERE, credit=c) for t, c in [(0, 0.0), (1, 8.0)]]
    assert advantages(GiGPO(), *trees) == [0.0, 0.0]


def test_a_trajectory_that_is_left_out_is_no_baseline_for_a_state() -> None:
    lost = [make_turn(branch=2, prompt=HERE, credit=9.0), make_turn(branch=2, turn=1, credit=None)]
    turns = score(GiGPO(scale_by_std=False), *TURNS, *lost)
    assert [turn.advantage for turn in turns] == [-1.0, -1.0, -3.0, 5.0, None, None]
    assert [turn.rewards.credit for turn in turns[4:]] == [None, None]
