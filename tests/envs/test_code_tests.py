from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.envs.code_tests import MAX_BLOCK, Case, read_tests, written

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.floats(-9, 9) | st.text("abc '\"\\\n", max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
)


def calls(text: str, limit: int = 9) -> list[tuple[Any, Any]]:
    return [(json.loads(c.given), json.loads(c.expected)) for c in read_tests(text, "f", limit)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(2, 3) == 5", [([2, 3], 5)]),
        ("f() == None", [([], None)]),
        ("f((1, -2.5), 'a b', True) == [(1,), {'k': 2}]", [([[1, -2.5], "a b", True], [[1], {"k": 2}])]),
        ("1. f(2) == 5\n2) f(3) == 6", [([2], 5), ([3], 6)]),
        ("* f(2) == 5.", [([2], 5.0)]),
        ("- f(2) == 5", [([2], 5)]),
        ("```python\nassert f(2) == 5\n```", [([2], 5)]),
        ("f(2) == 5  # two", [([2], 5)]),
        ("<think>f(1) == 1\n</think>\nf(2) == 5", [([2], 5)]),
        ("<think>f(1) == 1", []),
        ("g(2) == 5\nff(2) == 5", []),
        ("f(2) == 5 == 5", []),
        ("f(2) == 5; f(3) == 6", []),
        ("f(n=2) == 5", []),
        ("f(*[2]) == 5", []),
        ("f(2)(3) == 5", []),
        ("f({1, 2}) == 5", []),
        ("f({1: 2}) == 5", []),
        ("f(b'x') == 5", []),
        ("f(1e999) == 5", []),
        ("f(2j) == 5", []),
        ("f('\\ud83d') == 5", []),
        ("f({'\\ud83d': 1}) == 5", []),
        ("f(open('x')) == 5", []),
        ("f(2) == __import__('os')", []),
        (f"f('{'x' * 200}') == 5", []),
        (f"f({'(' * 90}1{')' * 90}) == 5", [([1], 5)]),
        (f"f({'-' * 180}1) == 5", []),
        ("f(2) == 5\x00", []),
    ],
)
def test_tests_of_a_function_are_lines_of_literals(text: str, expected: list[tuple[Any, Any]]) -> None:
    assert calls(text) == expected


def test_only_the_first_new_inputs_count() -> None:
    text = "f(1) == 1\nf(True) == 2\nf(1.0) == 3\nf('1') == 4\nf([1]) == 5\nf([1.0]) == 6\nf(2) == 7"
    assert calls(text) == [([1], 1), (["1"], 4), ([[1]], 5), ([2], 7)]
    assert calls(text, limit=2) == [([1], 1), (["1"], 4)]
    assert [c.expected for c in read_tests(text, "f", 9, (Case("[1]", "9"),))] == ["4", "5", "7"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```input\n1 2\n```\n```output\n3\n```", [("1 2\n", "3\n")]),
        ("First\n```input\n1\n2\n```\ngives\n```output\n3\n```\nend", [("1\n2\n", "3\n")]),
        ("```input\n1\n```\n```output\n2\n```\n```input\n1 \n```\n```output\n3\n```", [("1\n", "2\n")]),
        ("```output\n3\n```\n```input\n1\n```", []),
        ("```input\n1\n```\n```python\n2\n```\n```output\n3\n```", []),
        ("```input\n```\n```output\n3\n```", []),
        ("```input\n1\n```\n```output\n \n```", []),
        ("```input\n1\n```\n```output\n3\n", []),
        (f"```input\n{'1' * MAX_BLOCK}\n```\n```output\n3\n```", []),
    ],
)
def test_tests_of_a_program_are_pairs_of_blocks(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(c.given, c.expected) for c in read_tests(text, None, 9)] == expected


@given(st.lists(VALUES, max_size=2), VALUES)
def test_a_written_test_is_read_back(arguments: list[Any], result: Any) -> None:
    case = Case(json.dumps(arguments), json.dumps(result))
    text = written(case, "f")
    if len(text) <= 200:
        assert calls(text) == [(arguments, result)]


@given(st.text() | st.text("f(1)=='\\[{`\n input output"), st.sampled_from(["f", None]))
def test_any_text_is_read_without_a_crash(text: str, function: str | None) -> None:
    assert len(read_tests(text, function, 3)) <= 3


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8), st.data())
def test_writing_fewer_tests_never_scores_more(lines: list[tuple[int, bool]], data: st.DataObject) -> None:
    def right(chosen: list[tuple[int, bool]]) -> int:
        text = "\n".join(f"f({n}) == {n + 3 if good else 0}" for n, good in chosen)
        return sum(json.loads(c.expected) == json.loads(c.given)[0] + 3 for c in read_tests(text, "f", 3))

    kept = lines[: data.draw(st.integers(0, len(lines)))]
    assert right(kept) <= right(lines)
