"""Sudokus with one solution."""

from __future__ import annotations

import math
import random

from atgrpo.data.puzzles import Puzzle, PuzzleData, check_whole
from atgrpo.envs.sudoku import BLANK, SIDES, digits, lines, peers, solutions

CLUES = {4: 4, 9: 17}
"""Side -> fewest clues of a grid with one solution."""


class Sudokus(PuzzleData):
    """Grids with blanks and exactly one solution. See ``PuzzleData``.

    Renaming the digits keeps a grid in its split. The solved grids of side 4 are few (288), so a held-out puzzle's
    solution can be that of another one in ``train``.

    Args:
        side: 4 or 9 digits.
        blanks: Cells to fill, at most 64 of 81 and 12 of 16, as no grid with fewer clues has one solution (McGuire et
            al., 2014, "There is no 16-clue Sudoku"). With more than about 52 of 81 a draw often finds none, and with
            more than about 58 it takes longer than anyone waits.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which grids are drawn.
    """

    def __init__(
        self, side: int = 4, blanks: int = 4, train_size: int = 4096, heldout_size: int = 256, seed: int = 0
    ) -> None:
        check_whole(side=side, blanks=blanks)
        if side not in SIDES:
            raise ValueError(f"side got {side}, expected one of {SIDES}")
        if not 1 <= blanks <= side * side - CLUES[side]:
            raise ValueError(f"blanks got {blanks}, expected 1 to {side * side - CLUES[side]} for side {side}")
        super().__init__(train_size, heldout_size, seed)
        self._side, self._blanks = side, blanks

    def _puzzle(self, rng: random.Random) -> Puzzle | None:
        solved = _solved(self._side, rng)
        if solved is None:
            return None
        cells, left = list(solved), self._blanks
        for cell in rng.sample(range(len(cells)), len(cells)):
            cells[cell] = BLANK
            left -= 1
            seen = {cells[other] for other in peers(self._side)[cell]}
            forced = len(seen - {BLANK}) == self._side - 1  # all other digits stand around it: no need to search
            if not forced and len(solutions("".join(cells))) > 1:
                cells[cell] = solved[cell]
                left += 1
            if not left:
                answer = "".join(solved[i] for i, kept in enumerate(cells) if kept == BLANK)
                return lines("".join(cells), self._side), answer, {"blanks": self._blanks}
        return None


def _solved(side: int, rng: random.Random) -> str | None:
    """A full grid: the boxes on the diagonal by chance, as they do not see each other, the rest one way of a few."""
    cells, box = [BLANK] * (side * side), math.isqrt(side)
    for corner in range(0, side, box):
        mixed = rng.sample(digits(side), side)
        for i, digit in enumerate(mixed):
            cells[(corner + i // box) * side + corner + i % box] = digit
    found = solutions("".join(cells), limit=4)
    return rng.choice(found) if found else None
