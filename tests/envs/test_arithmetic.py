from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.envs.arithmetic import MAX_MAGNITUDE, ArithmeticSyntaxError, evaluate, milestones, to_text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12*3 + 4", Fraction(40)),
        ("  12*3 + 4\n", Fraction(40)),
        ("0.1+0.2", Fraction(3, 10)),
        (".5*4.", Fraction(2)),
        ("7/2", Fraction(7, 2)),
        ("7//2", Fraction(3)),
        ("-7//2", Fraction(-4)),
        ("2-3-4", Fraction(-5)),
        ("2-(3-4)", Fraction(3)),
        ("--5", Fraction(5)),
        ("6÷2×3", Fraction(9)),
        ("8 − 3", Fraction(5)),
    ],
)
def test_value_is_exact(expression: str, value: Fraction) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("12*3 + 4 = 40", "not an arithmetic expression"),
        ("12*3 + 4 =", "not an arithmetic expression"),
        ("1\n+2", "not an arithmetic expression"),
        ("2**9", "not an arithmetic expression"),
        ("6÷÷2", "not an arithmetic expression"),
        ("2××3", "not an arithmetic expression"),
        ("(1,2)", "not an arithmetic expression"),
        ("...", "not an arithmetic expression"),
        ("()", "not an arithmetic expression"),
        ("(5)(3)", "not an arithmetic expression"),
        ("+5", "not an arithmetic expression"),
        ("1e5", "not an arithmetic expression"),
        ("0x1F", "not an arithmetic expression"),
        ("1_000", "not an arithmetic expression"),
        ("٣+1", "not an arithmetic expression"),
        ("1\x00", "not an arithmetic expression"),
        ("__import__('os')", "not an arithmetic expression"),
        ("((1)", "not an arithmetic expression"),
        ("", "empty"),
        (" \n", "empty"),
        ("1/0", "division by zero"),
        ("1//(2-2)", "division by zero"),
        ("9" * 30, "number too large"),
        ("*".join(["999999999"] * 3), "number too large"),
        ("1/" + "/".join(["999999999"] * 3), "number too large"),
        ("(" * 60 + "-" * 60 + "1" + ")" * 60, "nested too deeply"),
        ("1" + "+1" * 60, "nested too deeply"),
        ("1" * 201, "longer than 200 characters"),
    ],
)
def test_hostile_text_is_refused_with_a_short_reason(expression: str, reason: str) -> None:
    with pytest.raises(ArithmeticSyntaxError) as error:
        evaluate(expression)
    assert str(error.value) == reason


def test_only_binary_operations_are_counted() -> None:
    assert evaluate("-(-15*6)+20", max_operations=2) == 110
    with pytest.raises(ArithmeticSyntaxError, match="more than 2 operations"):
        evaluate("15*6+20-30", max_operations=2)
    assert evaluate("80", max_operations=0) == 80


def test_a_megabyte_of_parentheses_is_refused_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(ArithmeticSyntaxError):
        evaluate("(" * 1_000_000)
    assert time.perf_counter() - start < 1


def _expressions() -> st.SearchStrategy[tuple[str, Fraction | None]]:
    """Text together with its value; None where it divides by zero."""

    def combine(
        parts: tuple[tuple[str, Fraction | None], str, tuple[str, Fraction | None]],
    ) -> tuple[str, Fraction | None]:
        (left, a), op, (right, b) = parts
        text = f"({left}) {op} ({right})"
        if a is None or b is None or (op == "/" and b == 0):
            return text, None
        return text, {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else None}[op]

    leaves = st.one_of(
        st.integers(0, 99).map(lambda n: (str(n), Fraction(n))),
        st.integers(0, 999).map(lambda n: (f"{n / 100:.2f}", Fraction(n, 100))),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+-*/"), inner).map(combine),
            inner.map(lambda e: (f"-({e[0]})", None if e[1] is None else -e[1])),
        ),
        max_leaves=5,
    )


@settings(max_examples=200, deadline=None)
@given(_expressions())
def test_agrees_with_fraction_arithmetic(case: tuple[str, Fraction | None]) -> None:
    text, value = case
    if value is None:
        with pytest.raises(ArithmeticSyntaxError, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == value


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789+-*/(). ×÷\n=^a,", max_size=60))
def test_any_text_gives_a_bounded_value_or_a_refusal(text: str) -> None:
    try:
        value = evaluate(text)
    except ArithmeticSyntaxError as error:
        assert len(str(error)) < 40
    else:
        assert abs(value.numerator) <= MAX_MAGNITUDE
        assert value.denominator <= MAX_MAGNITUDE


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(19), "19"),
        (Fraction(-3), "-3"),
        (Fraction(5, 4), "1.25"),
        (Fraction(-1, 8), "-0.125"),
        (Fraction(1, 3), "1/3"),
        (Fraction(1, 32), "1/32"),
        (Fraction(100, 8), "12.5"),
    ],
)
def test_to_text_is_short(value: Fraction, text: str) -> None:
    assert to_text(value) == text


@settings(max_examples=100, deadline=None)
@given(st.fractions(max_denominator=20_000))
def test_to_text_loses_nothing(value: Fraction) -> None:
    assert Fraction(to_text(value)) == value


def test_milestones_are_the_values_of_the_parts() -> None:
    assert milestones("4*6+5-3") == {24: pytest.approx(1 / 3), 29: pytest.approx(2 / 3), 26: 1.0}
    assert milestones("2*(3+4)") == {7: 0.5, 14: 1.0}
    assert milestones("12") == {}
