"""Expressions to be worked out, with one answer each: nothing to download, splits disjoint by construction."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence

from atgrpo.data.base import DistinctData, Split
from atgrpo.envs.arithmetic import MAX_DEPTH, MAX_LENGTH, MAX_MAGNITUDE, evaluate
from atgrpo.types import Sample

HELDOUT_SHARE = 8
"""One in so many sets of numbers and operators is held out, in whatever order they stand."""


class Expressions(DistinctData):
    """Prompts like ``12*73=``, whose answer is a positive integer that is none of the numbers in the prompt.

    An expression and those that have the same numbers and operators in another order belong to one split for good,
    whatever the sizes or the seed.

    Args:
        operations: Operations of the expressions, each from 1 to 31; drawn evenly.
        operators: The operators they are drawn from, some of ``+-*``.
        first: Least and largest first number, whole ones. What can come out is at most 10^18.
        others: Least and largest number after it.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which expressions are drawn.
    """

    def __init__(
        self,
        operations: Sequence[int] = (1,),
        operators: str = "*",
        first: Sequence[int] = (10, 99),
        others: Sequence[int] = (10, 99),
        train_size: int = 4096,
        heldout_size: int = 256,
        seed: int = 0,
    ) -> None:
        if not _are_whole(operations) or not all(1 <= n < MAX_DEPTH for n in operations):
            raise ValueError(f"operations got {operations}, expected a list of whole numbers from 1 to {MAX_DEPTH - 1}")
        if not operators or not set(operators) <= set("+-*"):
            raise ValueError(f"operators got {operators!r}, expected some of '+-*'")
        for name, bounds in (("first", first), ("others", others)):
            if not _are_whole(bounds) or len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1]:
                raise ValueError(f"{name} got {bounds}, expected [least, largest], whole numbers from 0")
        _check_magnitude(max(operations), operators, first[1], others[1])
        super().__init__(train_size, heldout_size, seed)
        self._operations, self._operators = tuple(operations), operators
        self._first, self._others = tuple(first), tuple(others)

    def _draw(self, rng: random.Random, name: Split, taken: Mapping[str, Sample]) -> Sample | None:
        count = rng.choice(self._operations)
        numbers = [rng.randint(*self._first), *(rng.randint(*self._others) for _ in range(count))]
        operators = [rng.choice(self._operators) for _ in range(count)]
        expression = str(numbers[0]) + "".join(f"{o}{n}" for o, n in zip(operators, numbers[1:], strict=True))
        answer = int(evaluate(expression))
        if split_of(numbers, operators) != name or answer < 1 or answer in numbers:
            return None
        return Sample(f"{name}-{len(taken)}", f"{expression}=", str(answer), {"expression": expression})


def _are_whole(numbers: object) -> bool:
    return isinstance(numbers, Sequence) and bool(numbers) and all(type(number) is int for number in numbers)


def _check_magnitude(operations: int, operators: str, first: int, other: int) -> None:
    """Refuses expressions that ``evaluate`` would find too large or too long."""
    settings = f"operations={operations}, operators={operators!r}, first up to {first} and others up to {other} got"
    largest = first * max(1, other) ** operations if "*" in operators else first + other * operations
    # A product of the others may be subtracted from the first number, or added to it.
    largest = max(largest, first + other**operations) if set(operators) > {"*"} else largest
    if largest > MAX_MAGNITUDE:
        raise ValueError(f"{settings} results that may be over 10^18, expected smaller ones")
    length = len(str(first)) + operations * (1 + len(str(other)))
    if length > MAX_LENGTH:
        raise ValueError(f"{settings} up to {length} characters, expected at most {MAX_LENGTH}")


def split_of(numbers: Sequence[int], operators: Sequence[str]) -> Split:
    """Which split an expression belongs to: a stable hash that knows no order, so that 3*4 and 4*3 stay together."""
    key = f"{sorted(numbers)}|{sorted(operators)}"
    return "heldout" if zlib.crc32(key.encode()) % HELDOUT_SHARE == 0 else "train"
