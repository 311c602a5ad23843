"""``Sandbox``: runs a Python program that a model wrote, and says what came of it."""

from __future__ import annotations

import contextlib
import functools
import marshal
import math
import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import FileIO
from typing import Any

from atgrpo.sandbox import forms, usage
from atgrpo.sandbox.forms import Form
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.process import MOST_OUTPUT, Stopped, Watch, execute

_SLOTS = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))
"""Runs at once, of all sandboxes in this process. More would only wait for each other's cores, at the clock's cost."""

_STATUS_BYTES = 1024
"""What a plain run may report besides its output: that it began, and that its memory was not enough."""


class SandboxError(RuntimeError):
    """A failure of ours: the program could not be started, so nothing is known about it."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one program."""

    stdout: str
    stderr: str
    """Both cut at ``output_kb``."""
    exit_code: int | None
    """As a shell gives it, 128 + n where signal n ended it; None where the run was stopped."""
    stopped: Stopped | None
    """The limit that ended it."""
    seconds: float

    @property
    def ok(self) -> bool:
        """It ended by itself and without an error."""
        return self.exit_code == 0 and self.stopped is None


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs programs of a model. Safe to use from many threads; blocks while all cores are taken by other runs.

    With namespaces (bubblewrap, as root or as an ordinary user) a program sees no process, file or network of the
    machine. Elsewhere limits, a process group and a throw-away folder are left; ``describe`` says which it is.
    CPU time and address space are limits of each process; what all have together is measured from outside, 20 times
    a second, so for a moment a program can hold more. ``seconds`` is time on the clock: on a machine that is busy with
    other work a program gets less done in it.

    Args:
        limits: What one run may use.
        form: How programs are kept apart; by default the best that works on this machine, found once.
    """

    limits: Limits = field(default_factory=Limits)
    form: Form | None = None

    def run(self, source: str, stdin: str = "") -> Run:
        """Runs ``source`` as a main program. An uncaught MemoryError counts as stopped by its memory.

        Raises:
            SandboxError: it could not be started.
        """
        watch = self.start({"source": source, "calls": None}, stdin)
        stopped, code = verdict(watch)
        out, err = (bytes(stream.data).decode("utf-8", "replace") for stream in (watch.out, watch.err))
        return Run(out, err, code, stopped, seconds(watch))

    def protections(self) -> tuple[str, ...]:
        """What holds on this machine, one short line each."""
        return forms.protections(self._form(), self.limits)

    def lost(self) -> tuple[str, ...]:
        """What does not hold here that holds where there are namespaces."""
        return forms.lost(self._form())

    def describe(self) -> str:
        """Both in one line, and where something is lost, why."""
        return forms.describe(self._form(), self.limits, best_form()[1] if self.form is None else "as was asked for")

    def start(self, job: dict[str, Any], stdin: str) -> Watch:
        """Hands ``job`` to the launcher and returns once nothing of it runs any more.

        Raises:
            SandboxError: the launcher did not get as far as the program.
        """
        form = self._form()
        with _SLOTS:
            try:
                watch = _start(form, self.limits, job, stdin)
            except OSError as error:
                raise SandboxError(f"the sandbox could not start a program: {error}") from error
        if watch.started is None:
            said = bytes(watch.err.data).decode("utf-8", "replace").strip()[-300:] or "it said nothing"
            raise SandboxError(f"the sandbox could not start a program: {said}")
        return watch

    def _form(self) -> Form:
        return best_form()[0] if self.form is None else self.form


@functools.cache
def best_form() -> tuple[Form, str]:
    """The first form that runs a program here, and why the best one did not.

    Raises:
        SandboxError: not even a plain one does.
    """
    failures = [] if forms.bubblewrap() else ["bubblewrap is missing"]
    for form in forms.candidates():
        try:
            # An import after the launcher: a user of its own may not be able to read the interpreter's files.
            run = Sandbox(Limits(seconds=30), form).run("import json, random; print(json.dumps(1))")
        except SandboxError as error:
            failures.append(str(error))
            continue
        if run.stdout == "1\n":
            return form, failures[0] if failures else ""
        failures.append(run.stderr.strip()[-200:])
    raise SandboxError(f"no program could be run, not even without namespaces: {failures[-1]}")


def verdict(watch: Watch) -> tuple[Stopped | None, int | None]:
    """Why it was stopped, or its exit code."""
    code = watch.process.returncode
    code = 128 - code if code < 0 else code
    stopped = watch.stopped
    if stopped is None and code == 128 + signal.SIGXCPU:
        stopped = "time"
    if stopped is None and code != 0 and bytes(watch.status.data).endswith(b"memory\n"):
        stopped = "memory"
    return (None, code) if stopped is None else (stopped, None)


def seconds(watch: Watch) -> float:
    """From the program's first line to its end."""
    if watch.started is None or watch.ended is None:
        return math.nan
    return watch.ended - watch.started


def _start(form: Form, limits: Limits, job: dict[str, Any], stdin: str) -> Watch:
    program = form.filter
    uid = forms.spare_user() if form.own_user else None
    whole = ("cpu_seconds", "memory_mb", "processes", "file_mb", "output_kb")
    settings = {name: math.ceil(getattr(limits, name)) for name in whole}
    settings |= {"uid": uid, "alone": not form.namespaces, "filter": program, "capped": form.counts_processes}
    with contextlib.ExitStack() as stack:
        data = stdin.encode("utf-8", "replace")
        fds = [_file(stack, marshal.dumps(job | settings))]
        if form.namespaces:
            fds += [_file(stack, data), *([_file(stack, program)] if program else [])]

        def command(status: int) -> list[str]:
            python = forms.python([str(fds[0]), str(status)])
            if not form.namespaces:
                return python
            return forms.isolated_command(form, limits, fds[2] if program else None, fds[1]) + python

        enough = round(limits.memory_mb * 2**20)
        return execute(
            command,
            limits=limits,
            stdin=_file(stack, data),
            pass_fds=fds,
            environment={} if form.namespaces else forms.ENVIRONMENT,
            folder="/" if form.namespaces else stack.enter_context(_throw_away_folder(uid)),
            keep_status=_STATUS_BYTES if job["calls"] is None else MOST_OUTPUT,
            look=lambda pid: (
                usage.of_tree(pid, forms.FOLDER, enough) if form.namespaces else usage.of_group(pid, enough)
            ),
            processes=None if form.counts_processes else round(limits.processes),
        )


def _file(stack: contextlib.ExitStack, content: bytes) -> int:
    """A file in memory to read ``content`` from: unlike a pipe it needs nobody who writes."""
    written = stack.enter_context(FileIO(os.memfd_create("sandbox"), "w+"))
    written.write(content)
    # Opened again, so that what the program gets is for reading only.
    path = f"/proc/self/fd/{written.fileno()}"
    return stack.enter_context(FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "r")).fileno()


@contextlib.contextmanager
def _throw_away_folder(uid: int | None) -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="atgrpo-run-")
    try:
        if uid is not None:
            os.chown(folder, uid, uid)
        yield folder
    finally:
        # A program may have taken away its own right to list a folder.
        os.chmod(folder, 0o700)
        for path, folders, _ in os.walk(folder):
            for name in folders:
                below = os.path.join(path, name)
                if not stat.S_ISLNK(os.lstat(below).st_mode):
                    os.chmod(below, 0o700)
        shutil.rmtree(folder, ignore_errors=True)
