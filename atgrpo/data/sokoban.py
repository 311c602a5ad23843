"""Sokoban levels, made by playing backwards from a solved one."""

from __future__ import annotations

import random

from atgrpo.data.puzzles import Puzzle, PuzzleData, check_moves, check_share, check_whole
from atgrpo.envs.grids import paths
from atgrpo.envs.sokoban import FLOOR, WALL, Level, distances, mask, render


class SokobanLevels(PuzzleData):
    """Levels within walls whose shortest solution has a length in the given range. See ``PuzzleData``.

    Every room is searched as a whole: a second or third box in a larger room makes thousands of levels a matter of
    minutes.

    Args:
        size: Side of the square, its outer walls included.
        boxes: Boxes, and goals.
        walls: Chance of each inner cell to be a wall.
        min_moves: Fewest moves a level may need.
        max_moves: Most moves a level may need; None is any.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which levels are drawn.
    """

    def __init__(
        self,
        size: int = 6,
        boxes: int = 1,
        walls: float = 0.1,
        min_moves: int = 2,
        max_moves: int | None = None,
        train_size: int = 4096,
        heldout_size: int = 256,
        seed: int = 0,
    ) -> None:
        check_whole(size=size, boxes=boxes, min_moves=min_moves, max_moves=max_moves)
        if size < 4:
            raise ValueError(f"size got {size}, expected at least 4")
        if not 1 <= boxes <= (size - 2) ** 2 - 2:
            raise ValueError(f"boxes got {boxes}, expected 1 to {(size - 2) ** 2 - 2} for size {size}")
        check_share("walls", walls)
        check_moves(min_moves, max_moves)
        super().__init__(train_size, heldout_size, seed)
        self._size, self._boxes, self._walls = size, boxes, walls
        self._min_moves, self._max_moves = min_moves, max_moves

    def _puzzle(self, rng: random.Random) -> Puzzle | None:
        inner = self._size - 2
        rows = [
            WALL + "".join(WALL if rng.random() < self._walls else FLOOR for _ in range(inner)) + WALL
            for _ in range(inner)
        ]
        room = [WALL * self._size, *rows, WALL * self._size]
        ways = paths(room)
        if len(ways) < self._boxes + 2:
            return None
        goals = mask(rng.sample(sorted(ways), self._boxes))
        starts = [
            position
            for position, moves in distances(ways, goals).items()
            if self._min_moves <= moves <= (self._max_moves or moves)
        ]
        if not starts:
            return None
        level = Level.parse(render("".join(room), self._size, goals, rng.choice(starts)))
        return level.show(level.start), level.solution(level.start) or "", {"moves": level.shortest}
