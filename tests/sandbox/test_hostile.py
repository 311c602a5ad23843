"""Programs that try to get out, to hang, or to score."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from atgrpo.sandbox.calls import call_function
from atgrpo.sandbox.compare import same_output, same_value
from atgrpo.sandbox.forms import Form
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Run, Sandbox
from tests.sandbox.machine import as_before, second_best

PROGRAMS = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "hostile").glob("*.py"))}
LIMITS = Limits(seconds=1, cpu_seconds=1, memory_mb=256, processes=16, file_mb=4)
ARGUMENTS, EXPECTED = [[2], [3]], [4, 9]
# Without namespaces, only what would do no harm to the machine of the tests.
WITHOUT_NAMESPACES = [
    *("busy_loop", "closes_files", "daemon", "endless_output", "exits_early", "exits_in_the_function", "fakes_results"),
    *("fork_bomb", "fork_bomb_of_orphans", "ignores_signals", "memory_hog", "memory_without_owner", "new_namespaces"),
    *("one_large_file", "overrides_builtins", "reads_environment", "sockets", "threads"),
]
# Without a user of its own, what an ordinary user could not do anyway; those that take less than a second.
WITHOUT_OWN_USER = ["new_namespaces", "raises_limits", "reads_secrets", "sockets", "writes_outside"]
WITH_NAMESPACES = [pytest.param(name, None, id=name) for name in PROGRAMS] + [
    pytest.param(name, form, id=f"{name}-user-namespace") for form in second_best() for name in WITHOUT_OWN_USER
]


def verdict(run: Run) -> str:
    return run.stopped or ("harmless" if run.ok else "failed")


def check(name: str, form: Form | None = None) -> None:
    source = PROGRAMS[name]
    wanted = source.splitlines()[0].removeprefix("# verdict: ")
    # Those that must reach another limit get the time to do so on a busy machine.
    seconds = 1 if wanted in ("time", "any") else 15
    sandbox = Sandbox(replace(LIMITS, seconds=seconds, cpu_seconds=seconds), form)
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(sandbox.run, source, "2\n")
        results = threads.submit(call_function, sandbox, source, "solve", ARGUMENTS).result()
        run = running.result()
    assert "escaped" not in run.stdout, run.stdout
    assert wanted in ("any", verdict(run)), run
    assert run.seconds < seconds + 4
    assert not same_output(run.stdout, "4")
    assert len(run.stdout) + len(run.stderr) <= 2 * LIMITS.output_kb * 1024
    assert len(results) == len(EXPECTED)
    scored = [r.error is None and same_value(r.value, right) for r, right in zip(results, EXPECTED, strict=True)]
    assert not any(scored), results


@pytest.mark.parametrize(("name", "form"), WITH_NAMESPACES)
def test_none_escapes_hangs_or_scores(
    name: str, form: Form | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with as_before(monkeypatch, tmp_path):
        check(name, form)


@pytest.mark.parametrize("name", WITHOUT_NAMESPACES)
def test_limits_hold_without_namespaces(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with as_before(monkeypatch, tmp_path):
        check(name, Form(namespaces=False, own_user=False))
