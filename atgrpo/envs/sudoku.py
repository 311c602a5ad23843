"""Fill a grid so that every row, column and box holds every digit once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from atgrpo.envs.grids import Outcome, Puzzle, read_rows
from atgrpo.envs.puzzle import PuzzleTeam, role_texts

BLANK = "."
CLASH = "x"
SIDES = (4, 9)


class Grid(Puzzle[str]):
    """A Sudoku of 4 or 9 digits with one solution; a state is its cells row by row, blank (``.``) only at the start.

    A plan is the digits of the blanks in reading order. A whole grid that changes a clue stays as it is: it is an
    illegal plan, and the state remains. The potential is the share of blanks whose digit stands in no other cell of its
    row, column or box: it looks at clues and rules, not at the solution.

    Raises:
        ValueError: the grid has another size, no blank, or not exactly one solution.
    """

    def __init__(self, rows: Sequence[str]) -> None:
        side = len(rows)
        if side not in SIDES or len(rows[0]) != side:
            raise ValueError(f"grid got {side} rows of {len(rows[0])} cells, expected a square of one of {SIDES}")
        self.symbols, self.start = digits(side), "".join(rows)
        if strange := sorted(set(self.start) - set(self.symbols + BLANK)):
            raise ValueError(f"grid got {strange[0]!r}, expected {self.symbols!r} and {BLANK!r}")
        self._side, self._blanks = side, [i for i, cell in enumerate(self.start) if cell == BLANK]
        found = solutions(self.start)
        if not self._blanks or len(found) != 1:
            state = "no blank" if not self._blanks else "several solutions" if found else "no solution"
            raise ValueError(f"grid got {state}, expected blanks and one solution")
        self._solution = "".join(found[0][i] for i in self._blanks)

    @classmethod
    def parse(cls, text: str) -> Grid:
        """The grid in a text, one row a line; ``0`` and ``_`` are blanks too.

        Raises:
            ValueError: it is none, or it has not exactly one solution.
        """
        return cls(read_rows(text.replace("0", BLANK).replace("_", BLANK), BLANK + digits(max(SIDES))))

    def show(self, state: str) -> str:
        return lines(self.start, self._side)

    def standing(self, state: str) -> str:
        return "" if state == self.start else f"Now:\n{self._marked(state)}"

    def complete(self, said: str) -> str | None:
        if len(said) == len(self.start):
            kept = all(clue in (BLANK, given) for clue, given in zip(self.start, said, strict=True))
            return "".join(said[i] for i in self._blanks) if kept else said
        return said if len(said) == len(self._blanks) else None

    def apply(self, state: str, plan: str) -> Outcome[str]:
        if len(plan) != len(self._blanks):
            changed = next(i for i, clue in enumerate(self.start) if clue not in (BLANK, plan[i]))
            row, column = divmod(changed, self._side)
            return Outcome(state, "", f"changes the clue at ({row + 1},{column + 1})")
        cells = list(self.start)
        for cell, digit in zip(self._blanks, plan, strict=True):
            cells[cell] = digit
        filled = "".join(cells)
        wrong = len(self._clashes(filled))
        return Outcome(filled, f"clashes\n{self._marked(filled)}" if wrong else "has no clash")

    def progress(self, state: str) -> float:
        return 1 - len(self._clashes(state)) / len(self._blanks)

    def solution(self, state: str) -> str | None:
        return self._solution

    def _clashes(self, state: str) -> set[int]:
        """The blanks that hold no digit, or one that another cell they see holds too."""
        seen = peers(self._side)
        return {i for i in self._blanks if state[i] == BLANK or any(state[j] == state[i] for j in seen[i])}

    def _marked(self, state: str) -> str:
        wrong = self._clashes(state)
        return lines("".join(CLASH if i in wrong else cell for i, cell in enumerate(state)), self._side)


def digits(side: int) -> str:
    """The digits of a grid of this side."""
    return "123456789"[:side]


def lines(cells: str, side: int) -> str:
    """Cells row by row as a text."""
    return "\n".join(cells[i : i + side] for i in range(0, len(cells), side))


@lru_cache
def units(side: int) -> tuple[tuple[int, int, int], ...]:
    """Per cell, the numbers of its row, its column and its box, counted through all three kinds."""
    box = math.isqrt(side)
    places = (divmod(cell, side) for cell in range(side * side))
    return tuple((row, side + column, 2 * side + row // box * box + column // box) for row, column in places)


@lru_cache
def peers(side: int) -> tuple[tuple[int, ...], ...]:
    """Per cell, the others of its row, column and box."""
    every = units(side)
    return tuple(
        tuple(j for j, other in enumerate(every) if j != i and set(own) & set(other)) for i, own in enumerate(every)
    )


def solutions(cells: str, limit: int = 2) -> list[str]:
    """Up to ``limit`` solutions of a grid: depth first, always at the blank with the fewest digits left."""
    side = math.isqrt(len(cells))
    of_cell = units(side)
    free = [(1 << side) - 1] * (3 * side)
    state, found = list(cells), list[str]()
    for cell, digit in enumerate(cells):
        if digit != BLANK and not _take(free, of_cell[cell], 1 << int(digit) - 1):
            return []

    def fill(blanks: list[int]) -> None:
        if not blanks:
            found.append("".join(state))
            return
        left = [free[r] & free[c] & free[b] for r, c, b in map(of_cell.__getitem__, blanks)]
        best = min(range(len(blanks)), key=lambda i: left[i].bit_count())
        cell = blanks[best]
        for number in range(side):
            if left[best] >> number & 1 and len(found) < limit:
                _take(free, of_cell[cell], 1 << number)
                state[cell] = str(number + 1)
                fill(blanks[:best] + blanks[best + 1 :])
                for unit in of_cell[cell]:
                    free[unit] |= 1 << number

    fill([i for i, cell in enumerate(cells) if cell == BLANK])
    return found


def _take(free: list[int], of_cell: Sequence[int], bit: int) -> bool:
    """Marks a digit as used in a cell's units; False where one of them has it already."""
    allowed = all(free[unit] & bit for unit in of_cell)
    for unit in of_cell:
        free[unit] &= ~bit
    return allowed


class SudokuTeam(PuzzleTeam):
    r"""Fills a Sudoku; a decided grid becomes the state if it keeps all clues. See ``PuzzleTeam``.

    An answer is the whole grid, row by row, or the digits of its blanks alone.
    """

    by_moves = False
    load = staticmethod(Grid.parse)
    texts = role_texts(
        "This is a Sudoku; a dot is a blank cell. Fill the blanks so that every row, every column and every box holds "
        "every digit once, and keep the digits that are given. In a filled grid, x marks cells whose digit clashes "
        "with another. (2,3) is row 2 from the top, column 3 from the left.",
        "the digits of the whole grid, row by row,",
        "1234 3412 2143 4321",
        "the digits of the whole grid, row by row",
    )
