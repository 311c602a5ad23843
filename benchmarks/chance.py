"""Goes through everything that can happen instead of sampling it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Chance:
    """Makes draws; ``every`` goes through all of them."""

    trail: list[tuple[int, Sequence[float]]] = field(default_factory=list)
    made: int = 0
    probability: float = 1.0

    def draw(self, chances: Sequence[float]) -> int:
        """An index; one that is impossible is never tried."""
        possible = [i for i, p in enumerate(chances) if p > 0]
        if self.made == len(self.trail):
            self.trail.append((0, possible))
        index = possible[self.trail[self.made][0]]
        self.made += 1
        self.probability *= chances[index]
        return index


def every(play: Callable[[Chance], T]) -> Iterator[tuple[float, T]]:
    """(probability, result) of every way that ``play`` can go."""
    trail: list[tuple[int, Sequence[float]]] = []
    while True:
        chance = Chance(list(trail))
        result = play(chance)
        yield chance.probability, result
        trail = chance.trail
        while trail and trail[-1][0] == len(trail[-1][1]) - 1:
            trail.pop()
        if not trail:
            return
        number, possible = trail.pop()
        trail.append((number + 1, possible))
