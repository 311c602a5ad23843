"""Tools. Type hints and a Google docstring are what the model is told and what its arguments are checked by."""

from __future__ import annotations


def add(a: float, b: float) -> float:
    """Adds two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


def multiply(a: float, b: float) -> float:
    """Multiplies two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a * b
