"""Outputs and values that are the same, and those that are not."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.sandbox.compare import same_output, same_value

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("stdout", "expected", "same"),
    [
        ("3\n", "3", True),
        ("3 \n4\n\n", "3\n4", True),
        ("3\r\n4\r\n", "3\n4\n", True),
        ("1  2", "1 2", True),
        (".333333", ".333333333333", True),
        ("0.333333333333", ".333333", True),
        ("0.3333", ".333333333333", False),
        ("1e3", "1000", True),
        ("3.0", "3", True),
        ("1000000", "1000001", False),
        ("10000000000000000000000", "10000000000000000000001", False),
        ("9" * 5000, "9" * 4999 + "8", False),
        ("+7", "7", True),
        ("-0", "0", True),
        ("5.0", "5", True),
        ("5.0000001", "5", False),
        ("5", "5.0000001", True),
        ("1000000006.0", "1000000007", False),
        ("1000000007.0", "1000000007", True),
        ("1e9", "1000000007", False),
        ("1e999", "9" * 309, False),
        ("1e999", "1" + "0" * 999, True),
        ("1e400", "2e500", False),
        ("1e400", "1.0000001e400", True),
        ("1e-999", "0.0", True),
        ("9" * 5000 + ".0", "9" * 5000, True),
        ("9" * 5000 + ".5", "9" * 5000, False),
        ("101", "0101", False),
        ("0101", "101", False),
        ("0101", "0101", True),
        ("007", "7", False),
        ("-01", "-1", False),
        ("00.5", "0.5", False),
        ("0", "00", False),
        ("3", "4", False),
        ("3 4", "3\n4", False),
        ("3\n\n4", "3\n4", False),
        ("3", "3 4", False),
        ("", "3", False),
        ("", "", True),
        ("\n\n", "", True),
        ("Yes", "YES", False),
        ("nan", "0", False),
        ("inf", "1e5", False),
        ("1_000", "1000", False),
        ("٣", "3", False),
        ("3 extra", "3", False),
    ],
)
def test_same_output(stdout: str, expected: str, same: bool) -> None:
    assert same_output(stdout, expected) is same


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], (1, 2), True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ([], {}, False),
        (0.1 + 0.2, 0.3, True),
        (0.3001, 0.3, False),
        (10**20, 10**20 + 1, False),
        (10**400, 1.5, False),
        (2500000.5, 2500000, False),
        (1000000006.0, 1000000007, False),
        (5.0, 5, True),
        (5, 5.0000001, True),
        (float("inf"), 10**400, False),
        (float("inf"), 1e308, False),
        (float("inf"), float("inf"), True),
        (float("nan"), float("nan"), False),
        ({"a": [1, (2,)]}, {"a": [1.0, [2]]}, True),
        ({"1": 2}, {1: 2}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([True], [1], False),
    ],
)
def test_same_value(value: Any, expected: Any, same: bool) -> None:
    assert same_value(value, expected) is same


@given(JSON)
def test_a_value_is_the_same_after_its_way_through_json(value: Any) -> None:
    assert same_value(json.loads(json.dumps(value)), value)


@given(st.text(), st.text())
def test_no_text_makes_the_comparison_fail(a: str, b: str) -> None:
    assert same_output(a, a)
    assert same_output(a, b) in (True, False)


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-3, 3))
def test_an_expected_integer_is_met_by_its_value_alone(number: int, value: float, step: int) -> None:
    for got in (value, float(number % 10**15 + step) if number > 0 else 0.5):
        wanted = number % 10**15
        assert same_value(got, wanted) is (Fraction(got) == wanted)
        assert same_output(repr(got), str(wanted)) is (Fraction(repr(got)) == wanted)
