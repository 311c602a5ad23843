"""What all puzzles that are made by rule share: disjoint splits without duplicates."""

from __future__ import annotations

import random
import zlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from atgrpo.data.base import DistinctData, Split
from atgrpo.types import Sample

HELDOUT_SHARE = 8
"""One in so many puzzles is held out."""

Puzzle = tuple[str, str, Mapping[str, Any]]
"""Prompt, a solution, meta."""


class PuzzleData(DistinctData):
    """Puzzles drawn by chance; each belongs to one split for good, with all its mirror images and rotations.

    Args:
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which puzzles are drawn.
    """

    @abstractmethod
    def _puzzle(self, rng: random.Random) -> Puzzle | None:
        """One puzzle, or None where the draw broke a rule."""

    def _draw(self, rng: random.Random, name: Split, taken: Mapping[str, Sample]) -> Sample | None:
        puzzle = self._puzzle(rng)
        if puzzle is None or split_of(puzzle[0]) != name:
            return None
        return Sample(f"{name}-{len(taken)}", *puzzle)


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
