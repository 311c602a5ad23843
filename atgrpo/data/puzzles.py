"""What all puzzles that are made by rule share: disjoint splits without duplicates."""

from __future__ import annotations

import random
import time
import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from atgrpo.data.base import DrawnData, Split
from atgrpo.types import Sample

HELDOUT_SHARE = 8
"""One in so many puzzles is held out."""
MISSES = 2000
"""Draws in a row without a new puzzle after which there are taken to be no more."""
PATIENCE = 20.0
"""Seconds of computing without a new puzzle after which the settings are taken to be too hard to meet."""

Draw = tuple[str, str, Mapping[str, Any]]
"""Prompt, a solution, meta."""


class PuzzleData(DrawnData):
    """Puzzles drawn by chance; each belongs to one split for good, with all its mirror images and rotations.

    Args:
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which puzzles are drawn.
    """

    @abstractmethod
    def _draw(self, rng: random.Random) -> Draw | None:
        """One puzzle, or None where the draw broke a rule."""

    def _generate(self, name: Split) -> Sequence[Sample]:
        rng = random.Random(f"{self._seed}-{name}")
        samples: dict[str, Sample] = {}
        misses, since = 0, time.thread_time()
        while len(samples) < self._sizes[name]:
            drawn = self._draw(rng)
            if drawn is not None and drawn[0] not in samples and split_of(drawn[0]) == name:
                samples[drawn[0]] = Sample(f"{name}-{len(samples)}", *drawn)
                misses, since = 0, time.thread_time()
                continue
            misses += 1
            why = f"{name}_size got {self._sizes[name]}, expected at most about {len(samples)}"
            if misses == MISSES:
                raise ValueError(why)
            if time.thread_time() - since > PATIENCE:
                raise ValueError(f"{why}: {misses} draws in {PATIENCE:g} s gave no other; expected easier settings")
        return tuple(samples.values())


def check_whole(**settings: float | None) -> None:
    """Refuses what is no whole number.

    Raises:
        ValueError: one of the settings is neither an integer nor None.
    """
    for field, value in settings.items():
        if value is not None and type(value) is not int:
            raise ValueError(f"{field} got {value}, expected a whole number")


def check_share(field: str, share: float) -> None:
    """Refuses what is no share.

    Raises:
        ValueError: ``share`` is not from 0 to below 1.
    """
    if not 0 <= share < 1:
        raise ValueError(f"{field} got {share}, expected 0 to below 1")


def check_moves(fewest: int, most: int | None) -> None:
    """Refuses an empty range of moves.

    Raises:
        ValueError: ``fewest`` is under 1, or ``most`` under ``fewest``.
    """
    if fewest < 1:
        raise ValueError(f"min_moves got {fewest}, expected at least 1")
    if most is not None and most < fewest:
        raise ValueError(f"max_moves got {most}, expected at least min_moves, {fewest}")


def split_of(prompt: str) -> Split:
    """Which split a puzzle belongs to: a stable hash of what mirroring, turning and renaming digits leave alike."""
    return "heldout" if zlib.crc32(canonical(prompt).encode()) % HELDOUT_SHARE == 0 else "train"


def canonical(prompt: str) -> str:
    """The first in order among the grid's 8 mirror images and rotations, digits named as they come."""
    rows = prompt.split("\n")
    images = []
    for _ in range(4):
        rows = ["".join(column) for column in zip(*reversed(rows), strict=True)]
        images += [_renamed("\n".join(rows)), _renamed("\n".join(reversed(rows)))]
    return min(images)


def _renamed(text: str) -> str:
    names: dict[str, str] = {}
    return "".join(names.setdefault(c, str(len(names) + 1)) if c.isdigit() else c for c in text)
