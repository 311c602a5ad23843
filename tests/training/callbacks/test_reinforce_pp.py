from __future__ import annotations

import math

import pytest

from atgrpo.training.callbacks.reinforce_pp import ReinforcePlusPlus
from tests.rollout.helpers import make_turn
from tests.training.callbacks.estimators import advantages, score

TURNS = [
    make_turn(tree=0, agent="a", credit=0.0),
    make_turn(tree=0, agent="b", branch=1, credit=2.0),
    make_turn(tree=1, agent="a", credit=4.0),
]


def test_the_baseline_and_the_scale_are_those_of_the_batch_and_not_of_a_prompt() -> None:
    turns = score(ReinforcePlusPlus(eps=0.0), *TURNS)  # mean 2, std 2
    assert [turn.advantage for turn in turns] == [-1.0, 0.0, 1.0]
    assert [turn.group for turn in turns] == [0, 0, 0]


def test_a_missing_reward_is_not_in_the_batch() -> None:
    half = 1 / math.sqrt(2)
    found = advantages(ReinforcePlusPlus(eps=0.0), *TURNS[:2], make_turn(branch=5, credit=None))
    assert found == pytest.approx([-half, half, None])
