"""What runs inside the sandbox: sets the limits, then runs the program in the same interpreter (one start, not two).

Passed as text to ``python -c``, so it imports nothing of this package. Everything here is in the program's reach once
that runs: the harness trusts nothing that comes back, beyond "this is what the program says it computed".
"""

from __future__ import annotations

import builtins
import marshal
import os
import resource
import sys
from types import ModuleType
from typing import Any

PROGRAM = "program.py"
MB = 1 << 20


def main(job_fd: int, status_fd: int) -> None:
    """Takes the job, says "ready" once the limits hold, and runs it."""
    with open(job_fd, "rb") as file:
        job = marshal.load(file)
    os.environ.clear()
    set_limits(job)
    if job["uid"] is not None:
        os.setgroups([])
        os.setresgid(job["uid"], job["uid"], job["uid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    if job["alone"]:
        confine(job["filter"])
    os.set_inheritable(status_fd, False)
    # Programs call them, and -S leaves them out.
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    if job["calls"] is None:
        sys.argv[:] = [PROGRAM]
        # A file of that name, so that tracebacks show the lines.
        with open(PROGRAM, "w", encoding="utf-8", errors="replace") as file:
            file.write(job["source"])
        os.write(status_fd, b"ready\n")
        run(job["source"], status_fd)
    else:
        answer_calls(job, status_fd)


def set_limits(job: dict[str, Any]) -> None:
    """Limits that hold in the kernel."""
    limits = {
        resource.RLIMIT_AS: (job["memory_mb"] * MB,) * 2,
        # The soft limit ends it with SIGXCPU, which tells a time-out; who ignores that is killed a second later.
        resource.RLIMIT_CPU: (job["cpu_seconds"], job["cpu_seconds"] + 1),
        resource.RLIMIT_FSIZE: (job["file_mb"] * MB,) * 2,
        resource.RLIMIT_NOFILE: (64, 64),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
    }
    if job["capped"]:
        limits[resource.RLIMIT_NPROC] = (job["processes"], job["processes"])
    for name, (soft, hard) in limits.items():
        most = resource.getrlimit(name)[1]
        cap = hard if most == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(name, (min(soft, cap), cap))


def confine(program: bytes | None) -> None:
    """What bubblewrap does where there are namespaces: dies with the parent, no new privileges, the filter."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).prctl
    set_death_signal, set_no_new_privileges, set_seccomp, kill, filter_mode = 1, 38, 22, 9, 2
    steps: list[tuple[Any, ...]] = [(set_death_signal, kill, 0, 0, 0), (set_no_new_privileges, 1, 0, 0, 0)]
    if program is not None:

        class Filter(ctypes.Structure):
            _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

        steps.append((set_seccomp, filter_mode, ctypes.byref(Filter(len(program) // 8, program)), 0, 0))
    for step in steps:
        if call(*step) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {step[0]} failed")


def run(source: str, status_fd: int) -> None:
    """Runs ``source`` as the main module; its exit code and traceback are those of plain Python."""
    module = ModuleType("__main__")
    module.__file__ = PROGRAM
    sys.modules["__main__"] = module
    try:
        exec(compile(source, PROGRAM, "exec", dont_inherit=True), module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        if isinstance(error, MemoryError):
            os.write(status_fd, b"memory\n")
        here = error.__traceback__
        error.__traceback__ = here.tb_next if here is not None else None  # without the launcher's own line
        sys.__excepthook__(type(error), error, error.__traceback__)
        raise SystemExit(1) from None


def answer_calls(job: dict[str, Any], status_fd: int) -> None:
    """Defines the function and sends what each call returns as soon as it is known, with index and nonce."""
    import json

    calls, most = job["calls"], job["output_kb"] * 1024
    arguments, name, nonce = json.loads(calls["arguments"]), calls["name"], calls["nonce"]
    write, dumps, leave = os.write, json.dumps, os._exit

    def send(index: int, kind: str, text: str) -> None:
        line = f"{nonce} {index} {kind} {text}\n".encode("utf-8", "replace")
        while line:
            line = line[write(status_fd, line) :]

    write(status_fd, b"ready\n")
    function, failure = define(job["source"], name)
    for index, values in enumerate(arguments):
        kind, text, size = "error", failure, 0
        if function is not None:
            try:
                kind, text = "value", dumps(function(*values), ensure_ascii=False)
                size = len(text.encode())  # half a character is an error here
            except BaseException as error:
                kind, text = "error", describe(error)
        if size > most:
            kind, text = "error", f"returned more than {job['output_kb']} KB"
        send(index, kind, text if kind == "value" else dumps(text))
    leave(0)


def define(source: str, name: str) -> tuple[Any, str]:
    """The function that ``source`` defines, or None and why there is none."""
    module = ModuleType("program")
    sys.modules["program"] = module
    try:
        exec(compile(source, PROGRAM, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        return None, describe(error)
    function = module.__dict__.get(name)
    return (function, "") if callable(function) else (None, f"NameError: no function {name!r} is defined")


def describe(error: BaseException) -> str:
    """Kind and message, cut; a message may itself raise."""
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:
        return type(error).__name__


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
