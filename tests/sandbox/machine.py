"""What a run may have left behind."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from atgrpo.sandbox import forms
from atgrpo.sandbox.forms import Form, candidates
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox, SandboxError, best_form

MARK = "run-of-the-tests"
USER_NAMESPACE = Form(namespaces=True, own_user=False, user_namespace=True)
"""What root takes where it cannot give a program a user of its own, and everybody else takes first."""


@functools.cache
def second_best() -> list[Form]:
    """``USER_NAMESPACE`` where this machine can run it and does not take it anyway, else nothing."""
    if USER_NAMESPACE not in candidates() or best_form()[0] == USER_NAMESPACE:
        return []
    try:
        return [USER_NAMESPACE] if Sandbox(Limits(seconds=30), USER_NAMESPACE).run("").ok else []
    except SandboxError:
        return []


def processes(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def zombies() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal():
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                found += [int(folder.name)] if state == "Z" and int(parent) == os.getpid() else []
    return found


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextmanager
def as_before(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Fails if a process, a temporary folder or an open file is left."""
    mark = f"{MARK}-{folder.name}-{os.getpid()}"
    plain = forms.python
    with monkeypatch.context() as patch:
        patch.setattr(forms, "python", lambda arguments: plain([*arguments, mark]))
        patch.setattr(tempfile, "tempdir", str(folder))
        before = open_files()
        yield
        assert open_files() == before
    # The kernel takes a namespace down on its own time.
    until = time.monotonic() + 5
    while processes(mark) and time.monotonic() < until:
        time.sleep(0.02)
    assert processes(mark) == []
    assert zombies() == []
    assert list(folder.iterdir()) == []
