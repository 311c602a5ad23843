"""Rows of APPS, CodeContests and LiveCodeBench, as their authors publish them, turned into coding problems."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atgrpo.envs.code_judge import read_program

Row = Mapping[str, Any]
Pair = list[Any]
"""stdin and stdout, or arguments and result."""

PYTHON3 = 3
"""Of CodeContests' languages: 0 unknown, 1 Python 2, 2 C++, 3 Python 3, 4 Java."""
MAX_UNPACKED = 256 * 2**20
"""Largest pack of LiveCodeBench's private tests, in bytes."""


class UnusableRowError(ValueError):
    """A row that holds no problem for us; the message says why."""


def apps(row: Row) -> tuple[str, dict[str, Any]]:
    """Prompt and meta of a row of APPS (arXiv:2105.09938).

    ``input_output`` and ``solutions`` are JSON texts, empty where there are none. With ``fn_name`` inputs are lists of
    arguments; where every output is a list of one item, that item is the result. APPS does not tell which tests its
    statement shows, so there are no examples.

    Raises:
        UnusableRowError: there are no tests, or they cannot be read.
    """
    tests = _json(row, "input_output") or {}
    function = tests.get("fn_name")
    inputs, outputs = tests.get("inputs") or [], tests.get("outputs") or []
    if function is None:
        pairs = [[_text(given), _text(result)] for given, result in zip(inputs, outputs, strict=False)]
    else:
        if all(isinstance(result, list) and len(result) == 1 for result in outputs):
            outputs = [result[0] for result in outputs]
        pairs = [[given, result] for given, result in zip(inputs, outputs, strict=False)]
    meta = _meta(function, pairs, [], first_python(_json(row, "solutions") or [], function))
    return _prompt(str(row["question"]), str(row.get("starter_code") or ""), function), meta


def code_contests(row: Row) -> tuple[str, dict[str, Any]]:
    """Prompt and meta of a row of CodeContests (arXiv:2203.07814).

    Hidden are its private tests, then the generated ones; the public ones are the examples.

    Raises:
        UnusableRowError: there are no hidden tests.
    """
    hidden = [pair for field in ("private_tests", "generated_tests") for pair in _columns(row.get(field))]
    solutions = row.get("solutions") or {}
    written = zip(solutions.get("language") or (), solutions.get("solution") or (), strict=False)
    python = [text for language, text in written if language == PYTHON3]
    meta = _meta(None, hidden, _columns(row.get("public_tests")), first_python(python, None))
    return str(row["description"]), meta


def live_code_bench(row: Row) -> tuple[str, dict[str, Any]]:
    """Prompt and meta of a row of LiveCodeBench (arXiv:2403.07974), which publishes no solutions.

    Hidden are its private tests, the public ones are the examples. With ``func_name`` in its metadata a test's input is
    one JSON value a line, each an argument.

    Raises:
        UnusableRowError: there are no hidden tests, or they cannot be read.
    """
    function = (_json(row, "metadata") or {}).get("func_name")
    try:
        private, public = _unpacked(str(row["private_test_cases"])), json.loads(row["public_test_cases"] or "[]")
        hidden, examples = ([_live_pair(test, function) for test in tests] for tests in (private, public))
    except (ValueError, KeyError, TypeError, RecursionError, pickle.UnpicklingError, zlib.error, EOFError) as error:
        raise UnusableRowError(f"tests that cannot be read ({type(error).__name__})") from None
    prompt = _prompt(str(row["question_content"]), str(row.get("starter_code") or ""), function)
    return prompt, _meta(function, hidden, examples, None)


def _live_pair(test: Mapping[str, str], function: str | None) -> Pair:
    if function is None:
        return [test["input"], test["output"]]
    arguments = [json.loads(line) for line in test["input"].split("\n") if line.strip()]
    return [arguments, json.loads(test["output"])]


class _TextOnly(pickle.Unpickler):
    """Reads a pickle of plain values. Anything that would import or call something is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"got {module}.{name}, expected a text")


def _unpacked(packed: str) -> Any:
    """JSON, or the base64 of a zlib stream that holds a pickled JSON text."""
    if packed.lstrip()[:1] in ("[", ""):
        return json.loads(packed or "[]")
    stream = zlib.decompressobj()
    data = stream.decompress(base64.b64decode(packed), MAX_UNPACKED)
    if stream.unconsumed_tail:
        raise ValueError(f"private tests got more than {MAX_UNPACKED} bytes")
    text = _TextOnly(io.BytesIO(data)).load()
    if not isinstance(text, str):
        raise ValueError(f"private tests got {type(text).__name__}, expected a text")
    return json.loads(text)


def first_python(solutions: Iterable[str], function: str | None) -> str | None:
    """The first one that is Python 3 and defines ``function``."""
    found = (read_program(f"```python\n{text}\n```", function).source for text in solutions if "```" not in text)
    return next((source for source in found if source is not None), None)


def _meta(
    function: str | None, hidden: Sequence[Pair], examples: Sequence[Pair], reference: str | None
) -> dict[str, Any]:
    if function is not None:
        hidden, examples = ([p for p in pairs if isinstance(p[0], list)] for pairs in (hidden, examples))
    seen = {json.dumps(given) for given, _ in examples}
    kept = []
    for pair in hidden:
        key = json.dumps(pair[0])
        if key not in seen:
            seen.add(key)
            kept.append(pair)
    if not kept:
        raise UnusableRowError("no hidden tests")
    meta: dict[str, Any] = {"tests": kept, "examples": list(examples)}
    if function is not None:
        if not str(function).isidentifier():
            raise UnusableRowError("no usable name of its function")
        meta["function"] = function
    if reference is not None:
        meta["reference"] = reference
    return meta


def _prompt(question: str, starter: str, function: str | None) -> str:
    parts = [question.strip()]
    if starter.strip():
        parts.append(f"Starter code:\n```python\n{starter.rstrip()}\n```")
    elif function is not None:
        parts.append(f"The function's name is {function}.")
    return "\n\n".join(parts)


def _columns(tests: Mapping[str, Sequence[str]] | None) -> list[Pair]:
    tests = tests or {}
    return [list(pair) for pair in zip(tests.get("input") or (), tests.get("output") or (), strict=False)]


def _json(row: Row, field: str) -> Any:
    text = row.get(field) or ""
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):  # also numbers of thousands of digits
        raise UnusableRowError(f"{field} that is not JSON") from None


def _text(value: Any) -> str:
    """Some inputs and outputs of APPS are lists of lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)
