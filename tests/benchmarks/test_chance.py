from __future__ import annotations

from math import comb, isclose

import pytest

from benchmarks.chance import Chance, every


def test_every_outcome_comes_once_with_its_probability() -> None:
    def play(chance: Chance) -> tuple[int, ...]:
        first = chance.draw((0.25, 0.75))
        return (first, chance.draw((0.5, 0.3, 0.2))) if first else (first,)

    found = {result: probability for probability, result in every(play)}
    assert found == pytest.approx({(0,): 0.25, (1, 0): 0.375, (1, 1): 0.225, (1, 2): 0.15})
    assert isclose(sum(found.values()), 1)


def test_what_is_impossible_is_not_tried() -> None:
    assert [result for _, result in every(lambda chance: chance.draw((0.0, 1.0, 0.0)))] == [1]


def test_a_game_without_draws_has_one_outcome() -> None:
    assert list(every(lambda chance: "over")) == [(1.0, "over")]


def test_a_binomial_comes_out() -> None:
    totals = [0.0] * 4
    for probability, ones in every(lambda chance: sum(chance.draw((0.6, 0.4)) for _ in range(3))):
        totals[ones] += probability
    assert totals == pytest.approx([comb(3, k) * 0.4**k * 0.6 ** (3 - k) for k in range(4)])
