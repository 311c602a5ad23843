"""Grids with obstacles and a way from S to G."""

from __future__ import annotations

import random

from atgrpo.data.puzzles import Puzzle, PuzzleData, check_moves, check_share, check_whole
from atgrpo.envs.plan_path import FREE, GOAL, START, WALL, Maze


class PathGrids(PuzzleData):
    """Grids whose shortest way from start to goal has a length in the given range. See ``PuzzleData``.

    Args:
        rows: Height.
        columns: Width.
        walls: Chance of each other cell to be a wall.
        min_moves: Fewest moves a grid may need.
        max_moves: Most moves a grid may need; None is any.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which grids are drawn.
    """

    def __init__(
        self,
        rows: int = 4,
        columns: int = 4,
        walls: float = 0.25,
        min_moves: int = 2,
        max_moves: int | None = None,
        train_size: int = 4096,
        heldout_size: int = 256,
        seed: int = 0,
    ) -> None:
        check_whole(rows=rows, columns=columns, min_moves=min_moves, max_moves=max_moves)
        if rows < 1 or columns < 1 or rows * columns < 2:
            raise ValueError(f"rows and columns got {rows} and {columns}, expected at least two cells")
        check_share("walls", walls)
        check_moves(min_moves, max_moves)
        if min_moves >= rows * columns:
            raise ValueError(f"min_moves got {min_moves}, expected under {rows} * {columns} cells")
        super().__init__(train_size, heldout_size, seed)
        self._rows, self._columns, self._walls = rows, columns, walls
        self._min_moves, self._max_moves = min_moves, max_moves

    def _puzzle(self, rng: random.Random) -> Puzzle | None:
        cells = [WALL if rng.random() < self._walls else FREE for _ in range(self._rows * self._columns)]
        start, goal = rng.sample(range(len(cells)), 2)
        cells[start], cells[goal] = START, GOAL
        rows = ["".join(cells[i : i + self._columns]) for i in range(0, len(cells), self._columns)]
        try:
            maze = Maze(rows)
        except ValueError:  # no way
            return None
        if not self._min_moves <= maze.shortest <= (self._max_moves or maze.shortest):
            return None
        return "\n".join(rows), maze.solution(maze.start) or "", {"moves": maze.shortest}
