"""Small coding problems of our own: a fixed set, and an endless one made by rule. Nothing to download."""

from __future__ import annotations

import functools
import json
import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from atgrpo.data.base import DistinctData, Split, TaskData, check_split
from atgrpo.types import Sample

PROBLEMS = Path(__file__).parent / "programs" / "small.jsonl"
_BUILTINS = {"__builtins__": {}, "len": len, "max": max, "min": min, "sum": sum}
HELDOUT_SHARE = 4
"""One in so many problems of the fixed set, and of the rules of the endless one, is held out."""
EXAMPLES, HIDDEN = 4, 6
"""Tests of a made problem."""
LEAST, MOST = 5, 1000
"""Bounds of ``largest``: below there are fewer numbers than tests, and a word is repeated so often."""


def sample_of(name: str, prompt: str, meta: Mapping[str, Any]) -> Sample:
    """A coding problem; its gold answer is the reference solution."""
    return Sample(name, prompt, str(meta.get("reference") or ""), meta)


class SmallPrograms(TaskData):
    """A fixed set of small problems, most of them about one function, some about a program that reads stdin.

    Each has its reference solution, public examples and hidden tests. Which split a problem is in follows from a hash
    of its name.

    Args:
        kind: ``function``, ``stdin``, or None for both.
    """

    def __init__(self, kind: Literal["function", "stdin"] | None = None) -> None:
        if kind not in ("function", "stdin", None):
            raise ValueError(f"kind got {kind!r}, expected 'function', 'stdin' or None")
        self._kind = kind
        self._splits: dict[str, tuple[Sample, ...]] = {}

    def split(self, name: Split) -> Sequence[Sample]:
        """The problems of one split, in the order of the file."""
        check_split(name)
        if not self._splits:
            samples = [_read(line) for line in PROBLEMS.read_text(encoding="utf-8").splitlines()]
            kept = [s for s in samples if self._kind in (None, "function" if "function" in s.meta else "stdin")]
            self._splits = {half: tuple(s for s in kept if _half(s.id) == half) for half in ("train", "heldout")}
        return self._splits[name]


def _read(line: str) -> Sample:
    row = json.loads(line)
    return sample_of(row.pop("id"), row.pop("prompt"), row)


def _half(key: str) -> Split:
    return "heldout" if zlib.crc32(key.encode()) % HELDOUT_SHARE == 0 else "train"


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of function with holes ``k`` and ``m`` for numbers."""

    text: str
    """What f returns."""
    expression: str
    """The same in Python."""
    arguments: str
    """Names, one letter each: ``a``, ``b``, ``n`` are numbers, ``x`` is a list of numbers, ``s`` is a word."""

    @property
    def head(self) -> str:
        """``f`` with its arguments."""
        return f"f({', '.join(self.arguments)})"


_ALIKE = (
    ("max(a, b)", ("min(a, b)", "a", "b")),
    ("max(x)", ("min(x)", "sum(x)", "x[0]", "x[-1]")),
    ("min(x)", ("max(x)", "sum(x)", "x[0]", "x[-1]")),
    ("sum(x)", ("max(x)", "min(x)", "x[0]", "x[-1]")),
    ("x[0]", ("max(x)", "min(x)", "sum(x)", "x[-1]")),
    ("x[-1]", ("max(x)", "min(x)", "sum(x)", "x[0]")),
)
"""What a program may take for a part of a rule by mistake."""

# No rule says what another one says, so numbers that are held out are held out in every wording.
RULES = (
    Rule("n plus {k}", "n + {k}", "n"),
    Rule("n minus {k}", "n - {k}", "n"),
    Rule("n times {k}", "n * {k}", "n"),
    Rule("n times {k} plus {m}", "n * {k} + {m}", "n"),
    Rule("n times {k} minus {m}", "n * {k} - {m}", "n"),
    Rule("{k} minus n times {m}", "{k} - n * {m}", "n"),
    Rule("n squared plus {k}", "n * n + {k}", "n"),
    Rule("the remainder of n divided by {k}", "n % {k}", "n"),
    Rule("the larger of n and {k}", "max(n, {k})", "n"),
    Rule("the smaller of n and {k}", "min(n, {k})", "n"),
    Rule("True if n is greater than {k}, else False", "n > {k}", "n"),
    Rule("a plus b plus {k}", "a + b + {k}", "ab"),
    Rule("a plus b minus {k}", "a + b - {k}", "ab"),
    Rule("a minus b plus {k}", "a - b + {k}", "ab"),
    Rule("a times b plus {k}", "a * b + {k}", "ab"),
    Rule("a times b minus {k}", "a * b - {k}", "ab"),
    Rule("a times {k} plus b", "a * {k} + b", "ab"),
    Rule("a plus b times {k}", "a + b * {k}", "ab"),
    Rule("a times {k} minus b", "a * {k} - b", "ab"),
    Rule("the larger of a and b, plus {k}", "max(a, b) + {k}", "ab"),
    Rule("the sum of x plus {k}", "sum(x) + {k}", "x"),
    Rule("the largest of x plus {k}", "max(x) + {k}", "x"),
    Rule("the smallest of x times {k}", "min(x) * {k}", "x"),
    Rule("the length of x plus {k}", "len(x) + {k}", "x"),
    Rule("the first of x minus {k}", "x[0] - {k}", "x"),
    Rule("the last of x plus {k}", "x[-1] + {k}", "x"),
    Rule("the length of s plus {k}", "len(s) + {k}", "s"),
    Rule("s repeated {k} times", "s * {k}", "s"),
)
WORDS = (
    "ant",
    "bee",
    "cat",
    "dog",
    "elk",
    "fish",
    "goat",
    "hen",
    "ibis",
    "jay",
    "koala",
    "lion",
    "mouse",
    "newt",
    "owl",
)


class SimpleFunctions(DistinctData):
    """``Write f(a, b) that returns a times b plus 3.``: one line of Python each, for a small model to start on.

    A (rule, numbers) pair belongs to one split for good, whatever the sizes or the seed.

    Args:
        arguments: Kinds of functions by their arguments (``n``, ``ab``, ``x``, ``s``).
        largest: Largest number in a rule, 5 to 1000; the smallest is 2.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which problems are drawn.
    """

    def __init__(
        self,
        arguments: Sequence[str] = ("n", "ab", "x", "s"),
        largest: int = 20,
        train_size: int = 512,
        heldout_size: int = 128,
        seed: int = 0,
    ) -> None:
        known = sorted({rule.arguments for rule in RULES})
        if not arguments or not set(arguments) <= set(known):
            raise ValueError(f"arguments got {list(arguments)}, expected a list of {known}")
        if not LEAST <= largest <= MOST:
            raise ValueError(f"largest got {largest}, expected {LEAST} to {MOST}")
        super().__init__(train_size, heldout_size, seed)
        self._rules = tuple(rule for rule in RULES if rule.arguments in arguments)
        self._largest = largest

    def _draw(self, rng: random.Random, name: Split, taken: Mapping[str, Sample]) -> Sample | None:
        rule = rng.choice(self._rules)
        numbers = {"k": rng.randint(2, self._largest), "m": rng.randint(2, self._largest)}
        text = rule.text.format(**numbers)
        prompt = f"Write {rule.head} that returns {text}."
        if prompt in taken or _half(text) != name:  # before its tests are drawn
            return None
        return sample_of(f"{name}-{len(taken)}", prompt, _tested(rule, numbers, self._largest, rng))


def _tested(rule: Rule, numbers: dict[str, int], largest: int, rng: random.Random) -> Mapping[str, Any]:
    """The ``meta`` of a problem: public examples, hidden tests and the reference solution."""
    expression = rule.expression.format(**numbers)
    parts = [(part, other) for part, alike in _ALIKE if part in expression for other in alike]
    wrong = [_compiled(expression.replace(part, other)) for part, other in parts]
    # Where a threshold may lie: just below, on and just above it.
    border = [[numbers["k"] + step] for step in (-1, 0, 1)] if rule.arguments == "n" else []
    cases = _cases(_compiled(expression), rule.arguments, border, largest, rng)
    while _too_easy(cases[EXAMPLES:], rule.arguments, wrong):
        cases = _cases(_compiled(expression), rule.arguments, border, largest, rng)
    return {
        "function": "f",
        "examples": cases[:EXAMPLES],
        "tests": cases[EXAMPLES:],
        "reference": f"def {rule.head}:\n    return {expression}",
    }


def _cases(
    code: CodeType, arguments: str, border: list[list[Any]], largest: int, rng: random.Random
) -> list[list[Any]]:
    """Pairs of arguments and result, no arguments twice; those of ``border`` stand last."""
    cases = {json.dumps(values): [values, _value(code, arguments, values)] for values in border}
    while len(cases) < EXAMPLES + HIDDEN:
        values = [_draw(letter, largest, rng) for letter in arguments]
        cases.setdefault(json.dumps(values), [values, _value(code, arguments, values)])
    made = list(cases.values())
    return made[len(border) :] + made[: len(border)]


def _too_easy(cases: Sequence[Sequence[Any]], arguments: str, wrong: Sequence[CodeType]) -> bool:
    """Whether a constant, an argument as it is, or a program that takes one part for another would pass."""
    results = [result for _, result in cases]
    columns = [list(column) for column in zip(*(given for given, _ in cases), strict=True)]
    if results in columns or all(result == results[0] for result in results):
        return True
    return any(all(_value(code, arguments, given) == result for given, result in cases) for code in wrong)


@functools.lru_cache(maxsize=4096)
def _compiled(expression: str) -> CodeType:
    return compile(expression, expression, "eval")


def _value(code: CodeType, arguments: str, values: Sequence[Any]) -> Any:
    """What one of our own expressions comes to."""
    return eval(code, _BUILTINS, dict(zip(arguments, values, strict=True)))


def _draw(letter: str, largest: int, rng: random.Random) -> Any:
    if letter == "x":
        return [rng.randint(0, 2 * largest) for _ in range(rng.randint(1, 4))]
    return rng.choice(WORDS) if letter == "s" else rng.randint(0, 2 * largest)
