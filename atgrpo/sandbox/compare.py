"""Comparing what a program gave with what was expected; outside the sandbox."""

from __future__ import annotations

import decimal
import json
import math
import re
from decimal import Decimal
from typing import Any

TOLERANCE = 1e-6
"""Relative; absolute below 1."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_PADDED = re.compile(r"[+-]?0\d", re.ASCII)
_WIDE = decimal.Context(prec=30, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


def same_output(stdout: str, expected: str) -> bool:
    """Whether both have the same lines.

    Space at the end of a line and empty lines at the end do not count; within a line the words do, not the space
    between them. A word equals the same word, or a number the same number. Where an integer is expected the value must
    be exactly that (``5.0`` is 5), else it must be within 1e-6. A number with a zero in front (``0101``) is a word.
    """
    got, wanted = _lines(stdout), _lines(expected)
    return len(got) == len(wanted) and all(
        len(a) == len(b) and all(map(_same_word, a, b)) for a, b in zip(got, wanted, strict=True)
    )


def same_value(value: Any, expected: Any) -> bool:
    """Whether two JSON values are the same: 1 == 1.0, lists are tuples, but True is not 1.

    Where a float is expected a number within 1e-6 will do, where an integer is expected only its value. Keys count as
    JSON writes them (1 is "1"). NaN equals nothing.
    """
    if isinstance(value, bool) or isinstance(expected, bool) or value is None or expected is None:
        return value is expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return value == expected if isinstance(expected, int) else _close(value, expected)
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


def _same_word(word: str, expected: str) -> bool:
    if word == expected:
        return True
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)) or _PADDED.match(word) or _PADDED.match(expected):
        return False
    # Floats would make infinity of two large numbers, and integers have no more than 4300 digits.
    a, b = Decimal(word), Decimal(expected)
    if _INTEGER.fullmatch(expected):
        return a == b
    with decimal.localcontext(_WIDE):
        return abs(a - b) <= Decimal(TOLERANCE) * max(abs(a), abs(b), Decimal(1))


def _close(a: float, b: float) -> bool:
    try:
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    except OverflowError:  # an integer beyond all floats
        return a == b


def _named(values: dict[Any, Any]) -> dict[str, Any]:
    return {key if isinstance(key, str) else json.dumps(key): value for key, value in values.items()}
