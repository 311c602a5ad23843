"""Real processes, really killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
SETTINGS = [
    "env._target_=tests.cli.letters.Letters",
    "iterations=3",
    "heldout.problems=2",
    "group_filter.mode=replace",
    "batching.minibatches=2",
]


def start(root: Path, *more: str, engine: str = "transformers") -> subprocess.Popen[str]:
    settings = [f"run.root={root}", f"engine={engine}", *SETTINGS, *more]
    command = [sys.executable, "-m", "atgrpo", "fit", "--config", "debug", *settings]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    return out


def state(root: Path) -> dict[str, Any]:
    (path,) = root.glob("debug/*/checkpoints/iteration_00003/state.ckpt")
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


def wait_for(root: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    while not list(root.glob(pattern)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Engine -> what a run ends with that nobody disturbs."""

    @cache
    def ends(engine: str) -> dict[str, Any]:
        root = tmp_path_factory.mktemp(engine)
        finish(start(root, engine=engine))
        return state(root)

    return ends


def assert_equal(got: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, torch.Tensor):
        assert torch.equal(got, expected), path
    elif isinstance(expected, dict):
        assert got.keys() == expected.keys(), path
        for key in expected:
            assert_equal(got[key], expected[key], f"{path}/{key}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(got) == len(expected), path
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_equal(a, b, f"{path}/{i}")
    else:
        assert got == expected, path


@pytest.mark.parametrize(("engine", "delay"), [("transformers", 0.0), ("transformers", 0.15), ("vllm", 0.0)])
def test_a_killed_run_resumed_equals_the_run_left_alone(
    engine: str, delay: float, tmp_path: Path, left_alone: Callable[[str], dict[str, Any]]
) -> None:
    process = start(tmp_path, engine=engine)
    wait_for(tmp_path, "debug/*/checkpoints/iteration_00001", process)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()
    out = finish(start(tmp_path, "--resume", "last", engine=engine))
    assert "going on in " in out
    expected = left_alone(engine)
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "RolloutDataModule", "callbacks"):
        assert_equal(state(tmp_path)[part], expected[part], part)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, left_alone: Callable[[str], dict[str, Any]]) -> None:
    process = start(tmp_path)
    wait_for(tmp_path, "debug/*/checkpoints/iteration_00001", process)
    process.send_signal(signal.SIGINT)
    out = finish(process)
    if "stopped and saved after iteration" in out:  # the signal may come while the last iteration is being learned
        assert "--resume" in out and "batching.minibatches=2" in out
        finish(start(tmp_path, "--resume", "last"))
    assert_equal(state(tmp_path)["state_dict"], left_alone("transformers")["state_dict"])


def test_a_finished_run_has_nothing_to_resume(tmp_path: Path) -> None:
    finish(start(tmp_path, "iterations=1"))
    assert "nothing to do" in finish(start(tmp_path, "--resume", "last", "iterations=1"))


def test_resume_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    process = start(tmp_path, "--resume", "last")
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "no checkpoint of debug" in out
