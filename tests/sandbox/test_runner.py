"""Running one program: verdicts, limits, and what the machine looks like afterwards."""

from __future__ import annotations

import copy
import os
import pickle
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atgrpo.sandbox import forms, runner
from atgrpo.sandbox.forms import Form
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox, SandboxError
from tests.sandbox.machine import as_before, second_best

PLAIN = Form(namespaces=False, own_user=False)


def named(form: Form | None) -> str:
    return "best" if form is None else "user-namespace" if form.namespaces else "plain"


FORMS = pytest.mark.parametrize("form", [None, *second_best(), PLAIN], ids=named)
FEW_FORMS = pytest.mark.parametrize("form", [None, PLAIN], ids=named)
"""Where a test takes its time."""
NAMESPACES = pytest.mark.parametrize("form", [None, *second_best()], ids=named)


@FORMS
@pytest.mark.parametrize(
    ("source", "stdin", "stdout"),
    [
        ("print(int(input()) + 1)", "41\n", "42\n"),
        ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", "abc", "cba"),
        ("print(open(0).read())", "é", "é\n"),
        ("print(open('/dev/stdin').read())", "x y", "x y\n"),
        ("import sys\nfor line in sys.stdin: print(line.split())", "1 2\n3\n", "['1', '2']\n['3']\n"),
        ("if __name__ == '__main__': print('main')", "", "main\n"),
        ("print(1)\nexit()", "", "1\n"),
        ("print(1)\nquit(0)\nprint(2)", "", "1\n"),
        ("import asyncio\nasync def f(): return 5\nprint(asyncio.run(f()))", "", "5\n"),
        ("import threading\nt = threading.Thread(target=print, args=(7,))\nt.start()", "", "7\n"),
        ("import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'12'))", "", "2\n"),
        ("import math, json, re, collections, heapq, itertools, functools, decimal, fractions\nprint(1)", "", "1\n"),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nprint(A(1))", "", "A(x=1)\n"),
        ("def f(x: int): pass\nprint(f.__annotations__['x'] is int)", "", "True\n"),
    ],
)
def test_correct_programs_pass(form: Form | None, source: str, stdin: str, stdout: str) -> None:
    run = Sandbox(form=form).run(source, stdin)
    assert (run.stdout, run.stderr, run.ok) == (stdout, "", True)


def test_a_set_has_the_same_order_in_each_run() -> None:
    program = "print({str(i) for i in range(50)})"
    assert Sandbox().run(program).stdout == Sandbox().run(program).stdout


@pytest.mark.parametrize(
    ("source", "code", "stderr"),
    [
        (
            "x = 1\nprint(x / 0)\n",
            1,
            'Traceback (most recent call last):\n  File "program.py", line 2, in <module>\n    print(x / 0)\n'
            "          ~~^~~\nZeroDivisionError: division by zero\n",
        ),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
        ("x = \0", 1, None),
        ("x = '\ud800'", 1, None),
    ],
)
def test_a_failing_program_is_told_as_python_tells_it(source: str, code: int, stderr: str | None) -> None:
    run = Sandbox().run(source)
    assert (run.exit_code, run.stopped, run.ok) == (code, None, False)
    assert stderr in (None, run.stderr)


@FEW_FORMS
def test_twenty_time_outs_in_a_row_leave_nothing(
    form: Form | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sandbox = Sandbox(Limits(seconds=0.05), form)
    with as_before(monkeypatch, tmp_path):
        runs = [sandbox.run("while True: pass") for _ in range(20)]
    assert [(run.stopped, run.exit_code) for run in runs] == [("time", None)] * 20


def test_cpu_time_of_a_process_is_a_limit_of_its_own() -> None:
    run = Sandbox(Limits(seconds=10, cpu_seconds=1)).run("while True: pass")
    assert run.stopped == "time"
    assert run.seconds < 8


@pytest.mark.parametrize("end", ["", "time.sleep(60)"])
def test_children_that_sleep_end_with_the_run(end: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = "import subprocess, time\nfor _ in range(3): subprocess.Popen(['sleep', '60'])\nprint(1, flush=True)\n"
    start = time.monotonic()
    with as_before(monkeypatch, tmp_path):
        run = Sandbox(Limits(seconds=0.5 if end else 10)).run(source + end)
    assert (run.stdout, run.stopped, run.exit_code) == ("1\n", "time" if end else None, None if end else 0), run
    assert time.monotonic() - start < 20


@FORMS
def test_endless_output_costs_us_bounded_memory(form: Form | None) -> None:
    sandbox = Sandbox(Limits(output_kb=8), form)
    sandbox.run("")
    tracemalloc.start()
    run = sandbox.run("while True: print('y' * 100000)")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (run.stopped, run.stdout) == ("output", "y" * 8192)
    assert peak < 1_000_000


@FORMS
def test_ten_megabytes_of_output_finish_and_are_cut(form: Form | None) -> None:
    run = Sandbox(Limits(output_kb=1), form).run("print('é' * 5_000_000)")
    assert run.ok
    assert run.stdout == "é" * 512


def test_two_hundred_children_are_capped() -> None:
    source = "import os, time\nfor _ in range(200):\n    if os.fork() == 0: time.sleep(60)\nprint('all')"
    run = Sandbox().run(source)
    assert (run.stdout, run.exit_code, run.stopped) == ("", 1, None)
    assert "BlockingIOError" in run.stderr


def test_runs_side_by_side_have_a_cap_each() -> None:
    source = "import os, time\nfor _ in range(20):\n    if os.fork() == 0: time.sleep(60)\nprint('all')"
    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(Sandbox().run, [source] * 4))
    assert [run.stdout for run in runs] == ["all\n"] * 4


@FEW_FORMS
def test_four_gigabytes_fail_at_512_megabytes(form: Form | None) -> None:
    for source in ("x = bytearray(4 << 30)", "import mmap\nmmap.mmap(-1, 4 << 30)"):
        run = Sandbox(form=form).run(source)
        assert not run.ok
    assert Sandbox(form=form).run("x = bytearray(200 << 20)").ok


def test_children_share_what_they_have_in_common() -> None:
    source = (
        "import os, time\nheld = b'1' * 100_000_000\nfor _ in range(8):\n    if os.fork() == 0: time.sleep(60)\n"
        "time.sleep(0.2)\nprint(1)"
    )
    assert Sandbox(Limits(memory_mb=256)).run(source).ok


@FORMS
def test_environment_of_ours_stays_out(form: Form | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    assert Sandbox(form=form).run("import os\nprint(dict(os.environ))").stdout == "{}\n"


@NAMESPACES
def test_files_of_ours_are_not_there(form: Form | None, tmp_path: Path) -> None:
    (tmp_path / "gold.txt").write_text("42")
    tmp_path.chmod(0o755)
    for path in (tmp_path / "gold.txt", Path(__file__), Path("/etc/passwd"), Path.home() / ".bashrc"):
        run = Sandbox(form=form).run(f"print(open({str(path)!r}).read())")
        assert run.stderr.splitlines()[-1].startswith("FileNotFoundError"), path


@NAMESPACES
def test_no_process_of_ours_is_there(form: Form | None) -> None:
    run = Sandbox(form=form).run("import os\nprint(os.getppid(), os.getpid() < 10)")
    assert run.stdout == "1 True\n"


@FORMS
def test_no_file_of_ours_is_open_in_the_program(form: Form | None) -> None:
    source = (
        "import os\nfor fd in range(4, 64):\n    try:\n        print(fd, os.read(fd, 5))\n"
        "    except OSError as error:\n        if error.errno != 9: print(fd, error)"
    )
    said = Sandbox(form=form).run(source).stdout.splitlines()
    # The one that is left reports to us; it is for writing only.
    assert len(said) <= 1, said
    assert "b'" not in "".join(said)


def test_no_more_runs_at_once_than_cores() -> None:
    with ThreadPoolExecutor(16) as threads:
        runs = list(threads.map(Sandbox(Limits(seconds=20)).run, ["import time; time.sleep(0.1)"] * 6))
    assert all(run.ok for run in runs)
    assert runner._SLOTS._value == len(os.sched_getaffinity(0))  # type: ignore[attr-defined]


def test_it_can_be_copied_and_pickled() -> None:
    sandbox = Sandbox(Limits(seconds=7))
    assert pickle.loads(pickle.dumps(sandbox)) == copy.deepcopy(sandbox) == sandbox


@FORMS
def test_a_failure_of_ours_is_no_verdict(form: Form | None, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = Sandbox(form=form)
    sandbox.run("")
    monkeypatch.setattr(forms, "interpreter", lambda: "/nowhere/python")
    with pytest.raises(SandboxError, match=r"could not start a program: .*nowhere"):
        sandbox.run("print(1)")


@pytest.mark.parametrize("name", ["seconds", "cpu_seconds", "memory_mb", "processes", "file_mb", "output_kb"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} got 0, expected a finite number above 0"):
        Limits(**{name: 0})
