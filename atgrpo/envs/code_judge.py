"""Programs: read out of a response, run on tests."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass, replace
from typing import Any

from atgrpo.envs.code_tests import Case, parse_quietly
from atgrpo.sandbox.blocks import python_block
from atgrpo.sandbox.calls import NEVER_RAN, Returned, call_function
from atgrpo.sandbox.compare import same_output, same_value
from atgrpo.sandbox.runner import Run, Sandbox

MAX_PROGRAM = 16_000
"""Longest program, in characters."""
MOST_TIMEOUTS = 2
"""A program that ran out of time (a function: that was ended within a call) so often is not run any further."""
ROOM = 4
"""So many times the expected output a program may print, where ``output_kb`` would be less."""
PRELUDE = "import collections, functools, heapq, itertools, math, re\nfrom typing import *\n"
"""What LeetCode's judge has imported before a ``class Solution``."""


@dataclass(frozen=True, slots=True)
class Program:
    """What was found in a response: a source, or why there is none."""

    source: str | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one test went."""

    passed: bool
    got: str
    """In words, cut."""


def read_program(text: str, function: str | None) -> Program:
    """The program in a response; it must parse, and define ``function`` somewhere if one is asked for."""
    source = python_block(text)
    if source is None or not source.strip():
        return Program(None, "no program")
    if len(source) > MAX_PROGRAM:
        return Program(None, "the program is too long")
    try:
        tree = parse_quietly(source)
    except SyntaxError as error:
        return Program(None, f"SyntaxError: {error.msg} in line {error.lineno}")
    except (ValueError, MemoryError, RecursionError):
        return Program(None, "the program cannot be read")
    if function is not None and not any(_binds(node, function) for node in ast.walk(tree)):
        return Program(None, f"{function} is not defined")
    return Program(source)


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.alias):
        return (node.asname or node.name) == name
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name


def judge(sandbox: Sandbox, source: str, function: str | None, cases: tuple[Case, ...]) -> tuple[Verdict, ...]:
    """Runs a program on tests: a function in one sandbox for all of them, a program on stdin in one for each.

    A crash or a time-out is a failed test, and the others are still run until ``MOST_TIMEOUTS``. Expected values stay
    outside of the sandbox. What is larger than ``output_kb`` and than ``ROOM`` times what is expected fails the test
    and is never compared: of an output only the beginning is known.

    Raises:
        SandboxError: a failure of ours.
    """
    if not cases:
        return ()
    if function is not None:
        sandbox = _with_room(sandbox, max(len(case.expected.encode("utf-8", "replace")) for case in cases))
        returned = _call(sandbox, _by_name(source, function), function, [json.loads(case.given) for case in cases])
        return tuple(_returned(r, case) for r, case in zip(returned, cases, strict=True))
    verdicts: list[Verdict] = []
    timeouts = 0
    for case in cases:
        if timeouts == MOST_TIMEOUTS:
            verdicts.append(Verdict(False, "was not run: out of time before"))
            continue
        roomy = _with_room(sandbox, len(case.expected.encode("utf-8", "replace")))
        run = roomy.run(source, case.given)
        timeouts += run.stopped == "time"
        verdicts.append(_printed(run, case, roomy.limits.output_kb))
    return tuple(verdicts)


def may_be_cut(run: Run, kept_kb: float) -> bool:
    """Whether the end of its output may be missing: it is as long as what is kept, or longer."""
    return len(run.stdout.encode()) >= round(kept_kb * 1024)


def _with_room(sandbox: Sandbox, expected_bytes: int) -> Sandbox:
    kb = ROOM * expected_bytes / 1024
    if kb <= sandbox.limits.output_kb:
        return sandbox
    return replace(sandbox, limits=replace(sandbox.limits, output_kb=math.ceil(kb)))


def _call(sandbox: Sandbox, source: str, function: str, arguments: list[Any]) -> list[Returned]:
    """``call_function``, started again behind a call that ended the program."""
    returned = call_function(sandbox, source, function, arguments)
    for _ in range(MOST_TIMEOUTS - 1):
        ran = [result for result in returned if result.error != NEVER_RAN]
        if len(ran) < len(arguments):
            returned = ran + call_function(sandbox, source, function, arguments[len(ran) :])
    return returned


def _by_name(source: str, function: str) -> str:
    """A method of ``class Solution`` under its own name."""
    try:
        top = parse_quietly(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # a reference that somebody else wrote
        return source
    outside = [node for line in top for node in ([line] if isinstance(line, ast.ClassDef) else ast.walk(line))]
    if any(_binds(node, function) for node in outside) or not any(_binds(node, "Solution") for node in top):
        return source
    return f"{PRELUDE}{source}\n\n{function} = Solution().{function}\n"


def _returned(returned: Returned, case: Case) -> Verdict:
    if returned.error is not None:
        return Verdict(False, f"failed: {_one_line(returned.error)[:80]}")
    return Verdict(same_value(returned.value, json.loads(case.expected)), f"gave {returned.value!r:.60}")


def _printed(run: Run, case: Case, kept_kb: float) -> Verdict:
    if run.stopped is not None:
        return Verdict(False, f"was stopped: {run.stopped}")
    if not run.ok:
        return Verdict(False, f"failed: {_one_line(run.stderr)[:80] or f'exit code {run.exit_code}'}")
    if may_be_cut(run, kept_kb):
        return Verdict(False, "printed too much")
    return Verdict(same_output(run.stdout, case.expected), f"gave {run.stdout.strip()!r:.60}")


def _one_line(error: str) -> str:
    """The last line that says something: of a traceback, the exception."""
    return next((line.strip() for line in reversed(error.split("\n")) if line.strip()), "")
