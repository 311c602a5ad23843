"""What a coding problem is made of, and how tests are read out of a response and written into a prompt."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from atgrpo.envs.contract import EnvError
from atgrpo.types import Sample

MAX_LINE = 200
"""Longest test of a function, in characters."""
MAX_BLOCK = 1000
"""Longest input, and longest output, of a test of a program."""
MAX_EXPECTED = 1_000_000
"""Longest expected output of a problem: the sandbox reads some more than four times as much."""

_LIST_MARK = re.compile(r"^(?:[-*]|\d{1,2}[.)])\s+")


@dataclass(frozen=True, slots=True)
class Case:
    """One test. Texts, so that it can be looked up: JSON for a function, stdin and stdout for a program."""

    given: str
    """The list of arguments, or all of stdin."""
    expected: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A coding problem as ``Sample.meta`` holds it.

    ``meta["tests"]`` are the hidden tests, ``meta["examples"]`` (optional) those that a prompt may show, both lists of
    ``[arguments, result]`` where ``meta["function"]`` names a function, else of ``[stdin, stdout]``.
    ``meta["reference"]`` (optional) is a solution.
    """

    function: str | None
    hidden: tuple[Case, ...]
    examples: tuple[Case, ...]
    reference: str | None

    @classmethod
    def of(cls, sample: Sample) -> Self:
        """Reads ``sample.meta``.

        Raises:
            ValueError: there are no hidden tests, one expects more than can be read, or something is of another form.
        """
        meta = sample.meta
        function, reference = meta.get("function"), meta.get("reference")
        if function is not None and not (isinstance(function, str) and function.isidentifier()):
            raise EnvError(f"sample {sample.id!r} got function {function!r}, expected the name of a function")
        if reference is not None and not isinstance(reference, str):
            raise EnvError(f"sample {sample.id!r} got reference {type(reference).__name__}, expected a text")
        hidden = _cases(sample.id, meta, "tests", function)
        if not hidden:
            raise EnvError(f"sample {sample.id!r} got no tests, expected at least one in its meta")
        return cls(function, hidden, _cases(sample.id, meta, "examples", function), reference)


def _cases(name: str, meta: Mapping[str, Any], field: str, function: str | None) -> tuple[Case, ...]:
    form = "[stdin, stdout]" if function is None else "[list of arguments, result]"
    cases = []
    for pair in meta.get(field) or ():
        if len(pair) != 2 or not isinstance(pair[0], str if function is None else list | tuple):
            raise EnvError(f"sample {name!r} got {pair!r} in {field}, expected {form}")
        given, expected = pair
        cases.append(Case(given, str(expected)) if function is None else Case(_json(given), _json(expected)))
        if (length := len(cases[-1].expected)) > MAX_EXPECTED:
            raise EnvError(f"sample {name!r} got {length} characters to expect, expected at most {MAX_EXPECTED}")
    return tuple(cases)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_tests(text: str, function: str | None, limit: int, known: tuple[Case, ...] = ()) -> tuple[Case, ...]:
    """The first ``limit`` tests of a response that say something new.

    A function's test is a line ``name(2, 3) == 5`` of literals (``assert`` or a list mark may stand in front); nothing
    of it is evaluated. A program's test is an ``input`` block and an ``output`` block behind it. Whatever else stands
    there is left out, and so is a test whose input is empty, in ``known`` or in an earlier test: numbers of equal value
    (1, 1.0, True) and texts that differ in blanks are one input.
    """
    said = "" if "</think>" not in text and text.lstrip().startswith("<think>") else text.rpartition("</think>")[2]
    cases: dict[str, Case] = {}
    seen = {_key(case.given, function) for case in known}
    for case in _blocks_in(said) if function is None else _lines_in(said, function):
        key = _key(case.given, function)
        if key not in seen:
            cases.setdefault(key, case)
        if len(cases) == limit:
            break
    return tuple(cases.values())


def parse_quietly(text: str) -> ast.Module:
    """The syntax tree of what a model wrote; what looks odd to the parser is no news.

    Raises:
        SyntaxError: it is no Python.
        ValueError, MemoryError, RecursionError: it cannot be read at all.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _lines_in(text: str, function: str) -> Iterator[Case]:
    for line in text.split("\n"):
        line = _LIST_MARK.sub("", line.strip()).strip("` ").removeprefix("assert ").lstrip()
        if line.startswith(f"{function}(") and len(line) <= MAX_LINE and (case := _call(line, function)):
            yield case


def _call(line: str, function: str) -> Case | None:
    """``name(literals) == literal``, values that JSON holds."""
    try:
        [statement] = parse_quietly(line).body
        compared = statement.value if isinstance(statement, ast.Expr) else None
        if not (isinstance(compared, ast.Compare) and isinstance(compared.left, ast.Call) and len(compared.ops) == 1):
            return None
        call, name = compared.left, compared.left.func
        if not (isinstance(name, ast.Name) and name.id == function) or call.keywords:
            return None
        if not isinstance(compared.ops[0], ast.Eq):
            return None
        arguments = [_plain(ast.literal_eval(node)) for node in call.args]
        return Case(_json(arguments), _json(_plain(ast.literal_eval(compared.comparators[0]))))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    """``value`` as it comes back from JSON.

    Raises:
        ValueError: JSON cannot hold it.
    """
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("dict got keys of other types, expected str")
        return {_plain(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str):
        value.encode()  # half a character is an UnicodeEncodeError, which is a ValueError
        return value
    raise ValueError(f"value got {type(value).__name__}, expected what JSON holds")


def _blocks_in(text: str) -> Iterator[Case]:
    given: str | None = None
    for label, content in _fenced(text):
        short = bool(content.strip()) and len(content) <= MAX_BLOCK
        if label == "output" and given is not None and short:
            yield Case(given, content)
        given = content if label == "input" and short else None


def _fenced(text: str) -> Iterator[tuple[str, str]]:
    """Label and content of every closed block."""
    label: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        if label is None:
            if line.startswith("```"):
                label, lines = line[3:].strip().lower(), []
        elif line.strip() == "```":
            yield label, "".join(f"{line}\n" for line in lines)
            label = None
        else:
            lines.append(line)


def _key(given: str, function: str | None) -> str:
    return " ".join(given.split()) if function is None else _json(_number(json.loads(given)))


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return [_number(item) for item in value]
    if isinstance(value, dict):
        return {key: _number(value[key]) for key in sorted(value)}
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value


def written(case: Case, function: str | None) -> str:
    """A test as an agent writes it."""
    if function is None:
        given, expected = (text if text.endswith("\n") else f"{text}\n" for text in (case.given, case.expected))
        return f"```input\n{given}```\n```output\n{expected}```"
    return f"{called(case, function)} == {json.loads(case.expected)!r}"


def called(case: Case, function: str | None) -> str:
    """What a test asks, in one line."""
    if function is None:
        return f"input {case.given!r}"
    return f"{function}({', '.join(repr(value) for value in json.loads(case.given))})"


def awaited(case: Case, function: str | None) -> str:
    """What a test expects, in one line."""
    return repr(case.expected.strip()) if function is None else repr(json.loads(case.expected))
