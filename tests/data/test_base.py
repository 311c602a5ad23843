"""Samples that are drawn until enough of them differ, on a row of numbers that is no chance at all."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

import atgrpo.data.base as base
from atgrpo.data.base import DistinctData, Split
from atgrpo.types import Sample


class Row(DistinctData):
    """Draws the numbers of a row in turn, again and again; None is a draw that broke a rule."""

    def __init__(self, row: list[int | None], size: int) -> None:
        super().__init__(size, size, seed=0)
        self.row, self.drawn = row, 0

    def _draw(self, rng: random.Random, name: Split, taken: Mapping[str, Sample]) -> Sample | None:
        number = self.row[self.drawn % len(self.row)]
        self.drawn += 1
        return None if number is None else Sample(f"{name}-{len(taken)}", str(number), "", {})


def test_samples_are_the_different_ones_in_the_order_they_were_drawn() -> None:
    data = Row([7, None, 7, 3, 7, 5], size=3)
    assert [(s.id, s.prompt) for s in data.split("train")] == [("train-0", "7"), ("train-1", "3"), ("train-2", "5")]
    assert data.drawn == 6
    assert data.split("train") is data.split("train")


def test_misses_in_a_row_end_the_search_and_a_find_starts_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MISSES", 3)
    assert len(Row([1, 1, 1, 2, 1, 1, 3], size=3).split("train")) == 3  # two misses before each find
    data = Row([1, 1, 1, 2], size=3)
    with pytest.raises(ValueError, match=r"^heldout_size got 3, expected at most about 2$"):
        data.split("heldout")
    assert data.drawn == 7


def test_slow_misses_end_the_search_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 99, 6))
    monkeypatch.setattr(base.time, "thread_time", lambda: float(next(clock)))
    data = Row([1, None], size=2)
    with pytest.raises(ValueError, match=r"^train_size got 2, expected at most about 1: 4 draws in 20 s gave no other"):
        data.split("train")
