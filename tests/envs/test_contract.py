from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from atgrpo.envs.contract import EnvError, check_paid, is_finite, returned, rewarded, success_of
from atgrpo.types import Action, StepResult
from tests.rollout.helpers import Tally


class Claims(Tally):
    """Says of itself what it is told to."""

    success: Any = 0.0


def claims(success: Any) -> Claims:
    env = Claims()
    env.success = success
    return env


@pytest.mark.parametrize(("said", "expected"), [(0, 0.0), (1, 1.0), (True, 1.0), (np.float32(0.5), 0.5)])
def test_success_is_from_nothing_to_all(said: Any, expected: float) -> None:
    found = success_of(claims(said))
    assert found == expected and type(found) is float
    assert math.isnan(success_of(claims(math.nan)))


@pytest.mark.parametrize("said", [2.0, -0.1, math.inf, None, "1"])
def test_another_success_is_refused(said: Any) -> None:
    with pytest.raises(EnvError, match=r"Claims\.success got .*, expected 0 to 1, or NaN where nobody knows"):
        success_of(claims(said))


@pytest.mark.parametrize("said", [(1.0, 0.0, False), "done", None])
def test_a_step_returns_a_result(said: Any) -> None:
    with pytest.raises(EnvError, match=r"Tally\.step returned .*, expected an object of StepResult"):
        rewarded(Tally(), said)


@pytest.mark.parametrize("reward", [math.nan, math.inf, 10**400, "1", [1.0]])
def test_rewards_are_finite_numbers_or_missing(reward: Any) -> None:
    assert rewarded(Tally(), StepResult(None, np.float64(1), False)).local_reward == 1
    for result in (StepResult(reward, 0.0, False), StepResult(0.0, reward, False)):
        with pytest.raises(EnvError, match=r"Tally\.step got rewards .*, expected finite numbers, or None"):
            rewarded(Tally(), result)
    assert not is_finite(reward)


def test_an_answer_of_the_right_kind_is_handed_on() -> None:
    action = Action(1, valid=True)
    assert returned(Tally(), "parse", action, Action) is action
    with pytest.raises(EnvError, match=r"Tally\.parse returned 'go', expected an object of Action"):
        returned(Tally(), "parse", "go", Action)


def test_no_reward_is_below_that_of_an_episode_without_an_answer() -> None:
    for paid in (None, -1.0, 0.0, 2.0):
        check_paid("judge", paid, -1.0)
    with pytest.raises(EnvError, match=r"judge paid -1, less than the 0 of an episode .*: set env\.unanswered"):
        check_paid("judge", -1.0, 0.0)
