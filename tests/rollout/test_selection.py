from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.rollout.selection import EpsilonGreedy, First, Greedy, Selection, Softmax, Uniform

RULES = [Greedy(), First(), Uniform(), Softmax(), EpsilonGreedy(0.5)]
by_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


def shares(rule: Selection, rewards: list[float | None], draws: int = 4000) -> list[float]:
    rng = Random(0)
    counts = Counter(rule(rewards, rng) for _ in range(draws))
    return [counts[i] / draws for i in range(len(rewards))]


def test_greedy_takes_the_highest() -> None:
    assert shares(Greedy(), [0.1, -2.0, 0.7, 0.6], 50) == [0, 0, 1, 0]


def test_ties_favour_no_branch_number() -> None:
    assert shares(Greedy(), [1.0, 0.0, 1.0, 1.0]) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.03)


@by_rule
def test_a_seed_fixes_the_choice(rule: Selection) -> None:
    def draws(seed: int) -> list[int]:
        rng = Random(seed)
        return [rule([1.0, 1.0, 1.0, 1.0], rng) for _ in range(20)]

    assert draws(3) == draws(3)


@by_rule
@given(rewards=st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_a_candidate_that_could_not_be_judged_is_never_taken(
    rule: Selection, rewards: list[float | None], seed: int
) -> None:
    chosen = rule(rewards, Random(seed))
    assert 0 <= chosen < len(rewards)
    assert rewards[chosen] is not None or all(reward is None for reward in rewards)


def test_first_ignores_the_rewards() -> None:
    assert shares(First(), [0.0, 5.0, 9.0], 20) == [1, 0, 0]
    assert shares(First(), [None, 5.0, 9.0], 20) == [0, 1, 0]


def test_uniform_ignores_the_rewards() -> None:
    assert shares(Uniform(), [0.0, 5.0, None, 9.0]) == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3], abs=0.03)


def test_softmax_follows_the_odds() -> None:
    # exp(1 / .5) = 7.389 to 1
    assert shares(Softmax(0.5), [0.0, 1.0]) == pytest.approx([1 / 8.389, 7.389 / 8.389], abs=0.02)
    assert shares(Softmax(0.1), [1000.0, None, 999.0], 200)[0] > 0.99


def test_epsilon_is_the_share_of_uniform_draws() -> None:
    assert shares(EpsilonGreedy(0.2), [0.0, 1.0]) == pytest.approx([0.1, 0.9], abs=0.02)
    assert shares(EpsilonGreedy(0.0), [0.0, 1.0], 100) == [0, 1]


@pytest.mark.parametrize(
    ("rule", "value"), [(Softmax, 0.0), (Softmax, -1.0), (EpsilonGreedy, 1.1), (EpsilonGreedy, -0.1)]
)
def test_settings_out_of_range_are_refused(rule: type, value: float) -> None:
    for wrong in (value, math.nan):
        with pytest.raises(ValueError, match=f"got .* {wrong}, expected"):
            rule(wrong)
