"""Which protections hold where, and what is said about it."""

from __future__ import annotations

import pytest

from atgrpo.sandbox import filter as filters
from atgrpo.sandbox import forms, runner
from atgrpo.sandbox.forms import Form, candidates, describe, lost, protections
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox

PLAIN = Form(namespaces=False, own_user=False)
ISOLATED = Form(namespaces=True, own_user=True)
NO_NETWORK = "import socket\ntry:\n    socket.socket()\n    print('made')\nexcept OSError:\n    print('refused')"


def test_with_namespaces_nothing_is_lost() -> None:
    assert lost(ISOLATED) == ()
    said = describe(ISOLATED, Limits(memory_mb=100), "")
    assert said.startswith("sandbox: own processes: sees and signals no other; no network; no files but Python's")
    assert "memory 100 MB for each process" in said
    assert "\n" not in said


def test_without_namespaces_the_line_says_what_is_lost() -> None:
    assert describe(PLAIN, Limits(), "user namespaces\nare off").startswith(
        "sandbox: WEAK, no namespaces here (user namespaces are off): files that this user may read are readable; "
        "folders that this user may write are writable; other processes are visible, those of this user can be "
        "signalled. It has: no network; "
    )
    assert "; ".join(Sandbox(form=PLAIN).lost()) in Sandbox(form=PLAIN).describe()


@pytest.mark.parametrize("tool", [None, "/usr/bin/false"])
def test_where_the_tool_is_missing_or_fails_the_plain_form_is_taken(
    tool: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "bubblewrap", lambda: tool)
    form, why = runner.best_form.__wrapped__()
    assert not form.namespaces
    assert ("missing" in why) if tool is None else ("could not start" in why)


def test_without_namespaces_the_filter_still_keeps_the_network_and_children_away() -> None:
    sandbox = Sandbox(form=PLAIN)
    assert sandbox.run(NO_NETWORK).stdout == "refused\n"
    assert sandbox.run("import os\nos.fork()").stderr.endswith("PermissionError: [Errno 1] Operation not permitted\n")
    assert {"no network", "no child processes", "nothing outlives its run"} <= set(sandbox.protections())


def test_on_an_unknown_machine_the_lack_of_a_filter_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters.platform, "machine", lambda: "riscv64")
    assert lost(PLAIN)[0] == "NO network isolation"
    assert not {"no network", "no child processes", "nothing outlives its run"} & set(protections(PLAIN, Limits()))
    assert Sandbox(form=PLAIN).run(NO_NETWORK).stdout == "made\n"


def test_without_the_tool_only_plain_forms_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "bubblewrap", lambda: None)
    assert not any(form.namespaces for form in candidates())


@pytest.mark.parametrize(("user", "first"), [(0, ISOLATED), (1000, Form(True, False, True))])
def test_the_best_form_is_tried_first(user: int, first: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "bubblewrap", lambda: "/usr/bin/bwrap")
    monkeypatch.setattr(forms.os, "geteuid", lambda: user)
    assert candidates()[0] == first
    assert first.counts_processes
    assert candidates()[-1] == PLAIN


def test_each_run_has_a_user_that_nobody_else_is() -> None:
    users = {forms.spare_user() for _ in range(100)}
    assert min(users) > 30_000
    assert len(users) > 90


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_filter_is_a_valid_program(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters.platform, "machine", lambda: machine)
    for network in (False, True):
        for processes in (False, True):
            program = filters.system_call_filter(network=network, processes=processes)
            assert program is not None
            steps = [program[i : i + 8] for i in range(0, len(program), 8)]
            # Every jump lands inside, and the last step returns.
            for number, step in enumerate(steps):
                code, if_true, if_false = step[0], step[2], step[3]
                assert code == 0x06 or number + 1 + max(if_true, if_false) < len(steps)
            assert steps[-1][0] == 0x06
