"""Comparing what a program gave with what was expected; outside the sandbox."""

from __future__ import annotations

import json
import math
import re
from typing import Any

TOLERANCE = 1e-6
"""Relative; absolute below 1."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def same_output(stdout: str, expected: str) -> bool:
    """Whether both have the same lines.

    Space at the end of a line and empty lines at the end do not count; within a line the words do, not the space
    between them. A word equals the same word, or a number the same number: integers exactly, others within 1e-6.
    """
    got, wanted = _lines(stdout), _lines(expected)
    return len(got) == len(wanted) and all(
        len(a) == len(b) and all(map(_same_word, a, b)) for a, b in zip(got, wanted, strict=True)
    )


def same_value(value: Any, expected: Any) -> bool:
    """Whether two JSON values are the same: 1 == 1.0, lists are tuples, floats are close, but True is not 1.

    Keys count as JSON writes them (1 is "1"). NaN equals nothing.
    """
    if isinstance(value, bool) or isinstance(expected, bool) or value is None or expected is None:
        return value is expected
    if isinstance(value, int) and isinstance(expected, int):
        return value == expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return _close(value, expected)
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(same_value, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        a, b = _named(value), _named(expected)
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    return isinstance(value, str) and isinstance(expected, str) and value == expected


def _lines(text: str) -> list[list[str]]:
    lines = [line.split() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(a: str, b: str) -> bool:
    if a == b:
        return True
    if not (_NUMBER.fullmatch(a) and _NUMBER.fullmatch(b)):
        return False
    if _INTEGER.fullmatch(a) and _INTEGER.fullmatch(b):
        # As text: there may be more digits than Python turns into a number.
        return _plain(a) == _plain(b)
    return _close(float(a), float(b))


def _plain(integer: str) -> str:
    digits = integer.lstrip("+-").lstrip("0") or "0"
    return f"-{digits}" if integer.startswith("-") and digits != "0" else digits


def _close(a: float, b: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # an integer beyond all floats
        return a == b


def _named(values: dict[Any, Any]) -> dict[str, Any]:
    return {key if isinstance(key, str) else json.dumps(key): value for key, value in values.items()}
