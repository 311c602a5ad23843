"""Find a way through a grid with obstacles."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from atgrpo.envs.grids import MovePuzzle, paths, read_rows
from atgrpo.envs.puzzle import PuzzleTeam, role_texts

WALL, FREE, START, GOAL = "#.SG"


class Maze(MovePuzzle[int]):
    """A grid of walls (``#``) and free cells, a start and a goal; a state is the number of the cell one stands on.

    Raises:
        ValueError: not exactly one start and one goal, or no way between them.
    """

    def __init__(self, rows: Sequence[str]) -> None:
        text = "".join(rows)
        for mark in (START, GOAL):
            if text.count(mark) != 1:
                raise ValueError(f"grid got {text.count(mark)} cells {mark!r}, expected one")
        self._rows, self._width = tuple(rows), len(rows[0])
        self._paths, self._goal = paths(rows), text.index(GOAL)
        super().__init__(text.index(START), _distances(self._paths, self._goal))

    @classmethod
    def parse(cls, text: str) -> Maze:
        """The maze in a text; short lines end in walls.

        Raises:
            ValueError: it is none, or it has no way to the goal.
        """
        return cls(read_rows(text, WALL + FREE + START + GOAL))

    def show(self, state: int) -> str:
        text = "".join(self._rows).replace(START, FREE)
        text = text[:state] + START + text[state + 1 :]
        return "\n".join(text[i : i + self._width] for i in range(0, len(text), self._width))

    def move(self, state: int, letter: str) -> int | None:
        return self._paths[state].get(letter)

    def where(self, state: int) -> str:
        row, column = divmod(state, self._width)
        return "ends on G" if state == self._goal else f"ends at ({row + 1},{column + 1})"


def _distances(ways: Mapping[int, Mapping[str, int]], goal: int) -> dict[int, int]:
    """Cell -> fewest moves to the goal, breadth first; a way back is as long as the way there."""
    found, queue = {goal: 0}, deque([goal])
    while queue:
        cell = queue.popleft()
        for after in ways[cell].values():
            if after not in found:
                found[after] = found[cell] + 1
                queue.append(after)
    return found


class PlanPathTeam(PuzzleTeam):
    """From S to G by U, D, L and R; a plan has solved it if it ends on G. See ``PuzzleTeam``."""

    load = staticmethod(Maze.parse)
    texts = role_texts(
        "S is where you stand, G is the goal, # is a wall and . is free. The moves are U (up), D (down), L (left) and "
        "R (right). A plan stops before its first move into a wall or off the grid, and must end on G. (2,3) is row 2 "
        "from the top, column 3 from the left.",
        "the moves",
        r"RRDL",
        "the moves as one line of letters",
    )
