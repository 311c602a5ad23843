"""Calls a function of a model's program on many arguments, in one sandbox."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atgrpo.sandbox.process import READY, Watch
from atgrpo.sandbox.runner import Sandbox, verdict

NEVER_RAN = "never ran"


@dataclass(frozen=True, slots=True)
class Returned:
    """What one call came to."""

    value: Any
    """As JSON holds it: tuples come back as lists, keys as text."""
    error: str | None
    """Set where there is no value: it raised, never ran, was stopped, ended the program, JSON cannot hold it, or it is
    larger than ``output_kb`` as JSON in UTF-8. No text here or in ``value`` holds half a character."""


def call_function(sandbox: Sandbox, source: str, name: str, arguments: Sequence[Sequence[Any]]) -> list[Returned]:
    """Defines ``source`` once, then calls ``name(*arguments[i])`` for each i in order; one result for each call.

    A result is sent as soon as it is known, so a call that hangs or ends the program costs itself and those after it,
    not those before. The main guard of ``source`` does not run, and what it prints does not count.

    A result counts only with its index, in order, and with a number that the launcher read before the program's first
    line. The program shares the interpreter with the launcher, so one that searches finds that number and can send
    results of its own. That gains it nothing: it is as free to return what it likes, and scores in either case only
    with the right values, which never enter the sandbox. So whoever calls this must compare outside, and every test
    needs an answer that cannot be guessed.

    Raises:
        ValueError: the arguments cannot be written as JSON.
        SandboxError: the program could not be started.
    """
    try:
        written = json.dumps([list(values) for values in arguments])
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"arguments got {error}, expected what JSON can hold") from error
    if not arguments:
        return []
    nonce = secrets.token_hex(16)
    watch = sandbox.start({"source": source, "calls": {"arguments": written, "name": name, "nonce": nonce}}, "")
    results = _read(bytes(watch.status.data), nonce)[: len(arguments)]
    if len(results) < len(arguments):
        results.append(Returned(None, _why(watch)))
    return results + [Returned(None, NEVER_RAN)] * (len(arguments) - len(results))


def _read(status: bytes, nonce: str) -> list[Returned]:
    results: list[Returned] = []
    for line in status.removeprefix(READY).split(b"\n")[:-1]:
        sender, _, rest = line.decode("utf-8", "replace").partition(" ")
        index, _, rest = rest.partition(" ")
        kind, _, text = rest.partition(" ")
        if sender == nonce and index == str(len(results)):
            results.append(_returned(kind, text))
    return results


def _returned(kind: str, text: str) -> Returned:
    try:
        value = json.loads(text)
        if kind == "value":
            # A program can send such a text itself, as an escape.
            json.dumps(value, ensure_ascii=False).encode()
            return Returned(value, None)
    except (ValueError, RecursionError):
        return Returned(None, "returned what JSON cannot hold")
    return Returned(None, str(value)[:200].encode("utf-8", "replace").decode())


def _why(watch: Watch) -> str:
    """What ended the program in the midst of a call."""
    stopped, code = verdict(watch)
    if stopped == "time":
        return "timed out"
    return f"ended the program with exit code {code}" if stopped is None else f"stopped: too much {stopped}"
