"""Exact arithmetic on text that a model wrote: no ``eval``, no floats, bounded work."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

MAX_LENGTH = 200
MAX_DEPTH = 32
MAX_MAGNITUDE = 10**18
"""Bound on every numerator and denominator on the way: a product can never grow past what one step makes of it."""

_ALLOWED = re.compile(r"[0-9+\-*/(). \t]*")
_SYMBOLS = str.maketrans({"×": " * ", "÷": " / ", "−": "-"})
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


class ArithmeticSyntaxError(ValueError):
    """The text is not an expression that can be evaluated; the message is short enough to show to a model."""


def evaluate(expression: str, *, max_operations: int | None = None) -> Fraction:
    """The exact value of ``+ - * / //``, unary minus and parentheses over integers and decimals.

    ``×`` and ``÷`` are read as ``*`` and ``/``. White space around the expression is ignored; anything else after it
    (``= 40``, a second line) is an error.

    Args:
        expression: What to evaluate.
        max_operations: The most binary operations allowed; None sets no bound.

    Raises:
        ArithmeticSyntaxError: not such an expression, too long, too deep, too large, or a division by zero.
    """
    tree, source = _parsed(expression)
    operations = sum(isinstance(node, ast.BinOp) for node in ast.walk(tree))
    if max_operations is not None and operations > max_operations:
        raise ArithmeticSyntaxError(f"more than {max_operations} operations")
    return _value(tree, source, MAX_DEPTH)


def milestones(expression: str) -> dict[Fraction, float]:
    """Value of each part of an expression -> share of the expression's operations that it takes.

    ``4*6+5-3`` gives ``{24: 1/3, 29: 2/3, 26: 1}``; where two parts have one value, the larger share counts.

    Raises:
        ArithmeticSyntaxError: as ``evaluate``.
    """
    tree, source = _parsed(expression)
    parts = {node: sum(isinstance(n, ast.BinOp) for n in ast.walk(node)) for node in ast.walk(tree)}
    shares: dict[Fraction, float] = {}
    for node, operations in parts.items():
        if isinstance(node, ast.BinOp):
            value = _value(node, source, MAX_DEPTH)
            shares[value] = max(shares.get(value, 0.0), operations / parts[tree])
    return shares


def _parsed(expression: str) -> tuple[ast.expr, str]:
    source = expression.strip()
    if len(source) > MAX_LENGTH:
        raise ArithmeticSyntaxError(f"longer than {MAX_LENGTH} characters")
    source = source.translate(_SYMBOLS).strip()
    if not source:
        raise ArithmeticSyntaxError("empty")
    if not _ALLOWED.fullmatch(source):
        raise ArithmeticSyntaxError("not an arithmetic expression")
    try:
        return ast.parse(source, mode="eval").body, source
    except (SyntaxError, MemoryError, RecursionError):
        raise ArithmeticSyntaxError("not an arithmetic expression") from None


def to_text(value: Fraction) -> str:
    """The shortest usual way to write ``value``: an integer, a decimal that ends within 4 places, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    if 10_000 % value.denominator:
        return f"{value.numerator}/{value.denominator}"
    digits = f"{abs(value.numerator) * (10_000 // value.denominator):05d}"
    return f"{'-' if value < 0 else ''}{digits[:-4]}.{digits[-4:]}".rstrip("0")


def _value(node: ast.expr, source: str, depth: int) -> Fraction:
    if depth == 0:
        raise ArithmeticSyntaxError("nested too deeply")
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            a, b = _value(left, source, depth - 1), _value(right, source, depth - 1)
            try:
                return _bounded(Fraction(_OPERATORS[type(op)](a, b)))
            except ZeroDivisionError:
                raise ArithmeticSyntaxError("division by zero") from None
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, source, depth - 1)
        case ast.Constant(value=int() | float()):
            # The parser already rounded a decimal to a float; the written digits are exact.
            return _bounded(Fraction(source[node.col_offset : node.end_col_offset]))
        case _:
            raise ArithmeticSyntaxError("not an arithmetic expression")


def _bounded(value: Fraction) -> Fraction:
    if abs(value.numerator) > MAX_MAGNITUDE or value.denominator > MAX_MAGNITUDE:
        raise ArithmeticSyntaxError("number too large")
    return value
