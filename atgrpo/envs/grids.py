r"""Puzzles on a grid: how one is written and read, and what those that are solved by moves share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from atgrpo.envs.answers import last_boxed

S = TypeVar("S")
"""A puzzle's state: immutable, so that forks may share it."""

STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
"""Letter -> step in (rows, columns)."""

_SEPARATORS = re.compile(r"[\s,;:|+\-→>`*\[\](){}'\"$]+")
_WRAPPERS = re.compile(r"\\(?:text|texttt|mathrm|mathtt)\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S]):
    """What a plan does."""

    state: S
    """Where it leads, up to the first illegal move."""
    report: str
    """The same in words, for the team."""
    illegal: str | None = None
    """The first illegal move; None if there is none."""


class Puzzle(ABC, Generic[S]):
    """The rules of one instance. A state is immutable, every method is pure."""

    symbols: str
    """The characters of a plan."""
    start: S

    @abstractmethod
    def show(self, state: S) -> str:
        """The puzzle from ``state`` on, in the form of a sample's prompt."""

    def standing(self, state: S) -> str:
        """What a team sees beside ``show``; nothing where that says it all."""
        return ""

    @abstractmethod
    def complete(self, said: str) -> str | None:
        """The plan that these symbols are, in its one canonical form; None where they are none."""

    @abstractmethod
    def apply(self, state: S, plan: str) -> Outcome[S]:
        """Follows a plan from ``state``."""

    @abstractmethod
    def progress(self, state: S) -> float:
        """The potential: 0 at the start, never negative, and 1 exactly where the puzzle is solved."""

    @abstractmethod
    def solution(self, state: S) -> str | None:
        """A plan that solves the puzzle from ``state``; None where there is none."""

    def read(self, text: str) -> str | None:
        r"""The plan in a response: its last ``\boxed{}``, else its last lines that hold nothing but symbols.

        Separators and thoughts (``<think>``) are skipped. None where that is no plan, or an empty one.
        """
        said = last_symbols(text, self.symbols)
        return self.complete(said) if said else None


class MovePuzzle(Puzzle[S]):
    """A puzzle that is solved by moves; the potential is the share of the shortest way that is behind.

    ``p(s) = max(0, 1 - moves left from s / moves left from the start)``, and 0 where no way is left.

    Args:
        start: Where the first plan begins.
        distances: State -> fewest moves to a solution; only states that have one.

    Raises:
        ValueError: there is no way from the start, or it is solved already.
    """

    symbols = "UDLR"

    def __init__(self, start: S, distances: Mapping[S, int]) -> None:
        if distances.get(start, 0) < 1:
            raise ValueError(f"puzzle got {'one already solved' if start in distances else 'no solution'}")
        self.start, self._distances = start, distances

    @abstractmethod
    def move(self, state: S, letter: str) -> S | None:
        """The state after one move; None where something is in the way."""

    @abstractmethod
    def where(self, state: S) -> str:
        """The state in a few words."""

    @property
    def shortest(self) -> int:
        """Fewest moves that solve it from the start."""
        return self._distances[self.start]

    def complete(self, said: str) -> str | None:
        return said

    def apply(self, state: S, plan: str) -> Outcome[S]:
        for number, letter in enumerate(plan, 1):
            after = self.move(state, letter)
            if after is None:
                return Outcome(state, self.where(state), f"blocked at move {number}")
            state = after
        return Outcome(state, self.where(state))

    def progress(self, state: S) -> float:
        left = self._distances.get(state)
        return 0.0 if left is None else max(0.0, 1 - left / self.shortest)

    def solution(self, state: S) -> str | None:
        if state not in self._distances:
            return None
        plan = ""
        while left := self._distances[state]:
            letter, state = next(
                (letter, after)
                for letter in self.symbols
                if (after := self.move(state, letter)) is not None and self._distances.get(after) == left - 1
            )
            plan += letter
        return plan


def last_symbols(text: str, symbols: str) -> str:
    """The symbols of the box, else of the last lines that hold nothing else; empty where there are none."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:  # cut before the answer
        return ""
    boxed = last_boxed(text)
    if boxed is not None:
        said = _SEPARATORS.sub("", _WRAPPERS.sub("", boxed))
        return said if set(said) <= set(symbols) else ""
    lines: list[str] = []
    for line in reversed(text.splitlines()):
        said = _SEPARATORS.sub("", line)
        if not set(said) <= set(symbols):
            break
        lines.append(said)
    return "".join(reversed(lines))


def read_rows(text: str, alphabet: str) -> tuple[str, ...]:
    """The lines of a grid, all of the longest one's width: the first character of ``alphabet`` fills up.

    Raises:
        ValueError: there are none, or one holds another character.
    """
    lines = [line.rstrip() for line in text.strip("\r\n").splitlines()]
    strange = [character for character in "".join(lines) if character not in alphabet]
    if strange or not any(lines):
        raise ValueError(
            f"grid got {strange[0]!r} in {text[:80]!r}, expected only {alphabet!r}" if strange else "grid got nothing"
        )
    width = max(map(len, lines))
    return tuple(line.ljust(width, alphabet[0]) for line in lines)


def paths(rows: Sequence[str], wall: str = "#") -> dict[int, dict[str, int]]:
    """Free cell -> letter -> the free cell it leads to. A cell's number is ``row * width + column``."""
    width = len(rows[0])
    free = {(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell != wall}
    return {
        r * width + c: {
            letter: (r + down) * width + c + right
            for letter, (down, right) in STEPS.items()
            if (r + down, c + right) in free
        }
        for r, c in free
    }
