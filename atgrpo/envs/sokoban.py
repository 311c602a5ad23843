"""Push boxes onto goals."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from atgrpo.envs.grids import MovePuzzle, paths, read_rows
from atgrpo.envs.puzzle import PuzzleTeam, role_texts

WALL, FLOOR, GOAL, BOX, BOX_ON_GOAL, PLAYER, PLAYER_ON_GOAL = "#-.$*@+"
MAX_POSITIONS = 300_000
"""Largest level by its positions that have a solution: about two seconds."""

_OPPOSITE = {"U": "D", "D": "U", "L": "R", "R": "L"}

Position = tuple[int, int]
"""Cell of the player, and the boxes' cells as bits."""


class Level(MovePuzzle[Position]):
    """A level in the usual notation: ``#`` wall, ``-`` floor, ``.`` goal, ``$`` box, ``@`` player.

    A box on a goal is ``*``, a player on one ``+``.

    Raises:
        ValueError: not one player, not as many boxes as goals, no solution, solved already, or too large.
    """

    def __init__(self, rows: Sequence[str]) -> None:
        text = "".join(rows)
        players, boxes, goals = (
            cells_of(text, marks) for marks in (PLAYER + PLAYER_ON_GOAL, BOX + BOX_ON_GOAL, goal_marks())
        )
        if len(players) != 1:
            raise ValueError(f"level got {len(players)} players, expected one")
        if not boxes or len(boxes) != len(goals):
            raise ValueError(f"level got {len(boxes)} boxes and {len(goals)} goals, expected as many, and at least one")
        self._walls = "".join(WALL if cell == WALL else FLOOR for cell in text)
        self._width, self._paths, self._goals = len(rows[0]), paths(rows), mask(goals)
        super().__init__((players[0], mask(boxes)), distances(self._paths, self._goals))

    @classmethod
    def parse(cls, text: str) -> Level:
        """The level in a text; ``_`` and spaces inside a line are floor too, short lines end in walls.

        Raises:
            ValueError: it is none, or it has no solution.
        """
        return cls(read_rows(text.replace(" ", FLOOR).replace("_", FLOOR), WALL + FLOOR + GOAL + "$*@+"))

    def show(self, state: Position) -> str:
        return render(self._walls, self._width, self._goals, state)

    def move(self, state: Position, letter: str) -> Position | None:
        player, boxes = state
        after = self._paths[player].get(letter)
        if after is None or not boxes >> after & 1:
            return None if after is None else (after, boxes)
        beyond = self._paths[after].get(letter)
        if beyond is None or boxes >> beyond & 1:
            return None
        return after, boxes ^ (1 << after) ^ (1 << beyond)

    def where(self, state: Position) -> str:
        player, boxes = state
        row, column = divmod(player, self._width)
        placed = (boxes & self._goals).bit_count()
        return f"ends at ({row + 1},{column + 1}), {placed}/{self._goals.bit_count()} done"


def goal_marks() -> str:
    """The marks of a cell that is a goal."""
    return GOAL + BOX_ON_GOAL + PLAYER_ON_GOAL


def cells_of(text: str, marks: str) -> list[int]:
    """Numbers of the cells with one of these marks."""
    return [i for i, mark in enumerate(text) if mark in marks]


def mask(cells: Sequence[int]) -> int:
    """Cells as bits."""
    return sum(1 << cell for cell in cells)


def render(walls: str, width: int, goals: int, state: Position) -> str:
    """A position as text; ``walls`` holds nothing but walls and floor."""
    player, boxes = state

    def mark(cell: int) -> str:
        on_goal = goals >> cell & 1
        if cell == player:
            return PLAYER_ON_GOAL if on_goal else PLAYER
        if boxes >> cell & 1:
            return BOX_ON_GOAL if on_goal else BOX
        return GOAL if on_goal else walls[cell]

    text = "".join(map(mark, range(len(walls))))
    return "\n".join(text[i : i + width] for i in range(0, len(text), width))


def distances(ways: Mapping[int, Mapping[str, int]], goals: int) -> dict[Position, int]:
    """Every position that has a solution -> its fewest moves, by playing backwards from all solved ones.

    Raises:
        ValueError: there are more than ``MAX_POSITIONS``.
    """
    found: dict[Position, int] = {(player, goals): 0 for player in sorted(ways) if not goals >> player & 1}
    queue = deque(found)
    while queue:
        state = queue.popleft()
        for before in _before(ways, state):
            if before not in found:
                found[before] = found[state] + 1
                queue.append(before)
        if len(found) > MAX_POSITIONS:
            raise ValueError(f"level got more than {MAX_POSITIONS} positions, expected a smaller one")
    return found


def _before(ways: Mapping[int, Mapping[str, int]], state: Position) -> Iterator[Position]:
    """The positions that one move leads from: a plain step, or one that pushed the box which is now ahead."""
    player, boxes = state
    for letter, opposite in _OPPOSITE.items():
        came_from = ways[player].get(opposite)
        if came_from is None or boxes >> came_from & 1:
            continue
        yield came_from, boxes
        ahead = ways[player].get(letter)
        if ahead is not None and boxes >> ahead & 1:
            yield came_from, boxes ^ (1 << ahead) ^ (1 << player)


class SokobanTeam(PuzzleTeam):
    """All boxes on goals by U, D, L and R; a box can be pushed, never pulled. See ``PuzzleTeam``.

    The potential counts moves, so it sees a way to a box and a box that can no longer be brought to a goal.
    """

    load = staticmethod(Level.parse)
    texts = role_texts(
        "This is a Sokoban level: # wall, - floor, . goal, $ box, @ you, * a box on a goal, + you on a goal. The moves "
        "are U (up), D (down), L (left) and R (right); moving into a box pushes it, if the cell behind it holds no "
        "wall and no box. A plan stops before its first move that is blocked, and must end with all boxes on goals. "
        "(2,3) is row 2 from the top, column 3 from the left.",
        "the moves",
        r"RRDL",
        "the moves as one line of letters",
    )
