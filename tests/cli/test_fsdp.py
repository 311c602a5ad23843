"""Whole runs of two real processes, each with an engine in a process of its own; really killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from atgrpo.quiet import LOST_PROCESS
from atgrpo.training.checkpoints import read_checkpoint
from tests.cli.test_resume import assert_equal

ROOT = Path(__file__).parents[2]
TWO = ["trainer=fsdp", "trainer.devices=2"]
SETTINGS = [
    "env._target_=tests.cli.letters.Letters",
    "engine=transformers",
    "agents.tool=a",
    "agents.reasoner=b",
    "policies.b.model=tiny-untied",
    "prompts_per_iteration=3",
    "batching.minibatches=2",
    "schedule.name=linear",
    # Adam divides by the gradient's size: one that is rounding error alone would move a weight by up to the whole rate.
    "optimizer.eps=1e-5",
    "heldout.problems=3",
    "group_filter.mode=replace",
    "checkpoint.keep_last=99",
]
ITERATIONS = 16
KILLS = 3


def start(root: Path, *more: str, until: int = ITERATIONS) -> subprocess.Popen[str]:
    settings = [f"run.root={root}", f"iterations={until}", *SETTINGS, *more]
    command = [sys.executable, "-m", "atgrpo", "fit", "--config", "debug", *settings]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=250)
    assert process.returncode == 0, out
    return out


def saved(root: Path, iteration: int = ITERATIONS) -> dict[str, Any]:
    (path,) = root.glob(f"debug/*/checkpoints/iteration_{iteration:05d}/state.ckpt")
    return read_checkpoint(path)


def iterations(root: Path) -> int:
    """Finished and saved."""
    return max((int(p.name.split("_")[1]) for p in root.glob("debug/*/checkpoints/iteration_*")), default=0)


def assert_close(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert got["state_dict"].keys() == expected["state_dict"].keys()
    for name, weight in expected["state_dict"].items():
        torch.testing.assert_close(got["state_dict"][name], weight, rtol=0, atol=1e-5, msg=name)
    assert got["RolloutDataModule"] == expected["RolloutDataModule"]
    assert got["lr_schedulers"] == expected["lr_schedulers"]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("one")
    finish(start(root))
    return root


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("two")
    return root, finish(start(root, *TWO))


def test_two_processes_play_and_learn_what_one_does(one: Path, two: tuple[Path, str]) -> None:
    root, out = two
    assert_close(saved(root), saved(one))
    assert out.count("run folder:") == out.count("done:") == 1
    assert "own process" in out


def test_killed_at_random_moments_it_ends_as_the_run_left_alone(two: tuple[Path, str], tmp_path: Path) -> None:
    moments = random.Random(0)
    more: list[str] = []
    for number in range(KILLS):
        before = iterations(tmp_path)
        process = start(tmp_path, *TWO, *more)
        # The first while everything is starting, the others while it plays, learns or writes.
        while number and iterations(tmp_path) == before and process.poll() is None:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 1.5 if number else 8))
        os.killpg(process.pid, signal.SIGKILL)  # both ranks and their engines
        process.communicate()
        more = ["--resume", "last"] if iterations(tmp_path) else []
    assert iterations(tmp_path) > 0
    finish(start(tmp_path, *TWO, *more))
    root, _ = two
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "RolloutDataModule", "callbacks"):
        assert_equal(saved(tmp_path)[part], saved(root)[part], part)


def test_a_checkpoint_of_two_goes_on_in_one_and_of_one_in_two(one: Path, two: tuple[Path, str], tmp_path: Path) -> None:
    root, _ = two
    (run_of_two,), (run_of_one,) = root.glob("debug/*"), one.glob("debug/*")
    finish(start(root, "--resume", str(run_of_two), until=ITERATIONS + 1))
    finish(start(one, "--resume", str(run_of_one), *TWO, until=ITERATIONS + 1))
    assert_close(saved(root, ITERATIONS + 1), saved(one, ITERATIONS + 1))


def test_a_checkpoint_of_two_is_scored_and_exported_by_one(two: tuple[Path, str], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    root, _ = two
    (folder,) = root.glob("debug/*/checkpoints/iteration_00003")
    common = ["--config", "debug", "--checkpoint", str(folder), *SETTINGS]
    command = [sys.executable, "-m", "atgrpo"]
    done = subprocess.run([*command, "evaluate", "--problems", "2", *common], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "held-out success (greedy, 2 problems)" in done.stdout, done.stderr
    done = subprocess.run([*command, "export", "--to", tmp_path, *common], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    weights = AutoModelForCausalLM.from_pretrained(tmp_path / "b").state_dict()
    expected = read_checkpoint(folder / "state.ckpt")["state_dict"]
    for name, weight in weights.items():
        assert torch.equal(weight, expected[f"policies.b.packed.model.{name}"])


def test_a_quantised_base_adapters_8_bit_optimisers_and_a_reference_go_on_in_one_process(tmp_path: Path) -> None:
    kinds = ["policy=qlora", "policy.model=tiny", "policies.b.model=tiny", "optimizer=adamw8bit", "optimizer.lr=1e-3"]
    kinds += ["trainer.precision=bf16-mixed", "policy.base_dtype=bfloat16", "loss.kl=0.1"]
    finish(start(tmp_path, *TWO, *kinds, "optimizer.min_8bit_size=64", until=2))
    finish(start(tmp_path, "--resume", "last", *kinds, "optimizer.min_8bit_size=64", until=3))
    state = saved(tmp_path, 3)
    assert {name.split(".")[-3] for name in state["state_dict"]} == {"lora_A", "lora_B"}
    moments = state["optimizer_states"][0]["state"]
    assert {values["step"] for values in moments.values()} == {6}
    assert any(values["state1"].dtype == torch.uint8 for values in moments.values())


def members(session: int, command: bytes) -> list[int]:
    """Processes of a run whose command line has this in it: its engines or its ranks."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session and command in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def test_an_engine_that_is_lost_is_started_again_and_nothing_changes(two: tuple[Path, str], tmp_path: Path) -> None:
    process = start(tmp_path, *TWO)
    while not iterations(tmp_path):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    os.kill(max(members(process.pid, b"process_child")), signal.SIGKILL)
    out = finish(process)
    assert "died, exit code -9" in out
    root, _ = two
    assert_close(saved(tmp_path), saved(root))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_takes_the_other_along_in_one_line(rank: int, tmp_path: Path) -> None:
    process = start(tmp_path, *TWO, until=400)
    while not iterations(tmp_path):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    ranks = members(process.pid, b"fit\0--config\0debug")
    os.kill(next(pid for pid in ranks if (pid == process.pid) == (rank == 0)), signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert out.count(f"error: {LOST_PROCESS}\n") == 1
    assert "Traceback" not in out
    assert not members(process.pid, b"python")


def test_one_interrupt_stops_all_ranks_after_the_iteration(tmp_path: Path) -> None:
    process = start(tmp_path, *TWO, until=50)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("debug/*/checkpoints/iteration_00001")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)  # to the first rank only
    assert "stopped and saved after iteration" in finish(process)


def test_several_processes_need_the_strategy(capfd: pytest.CaptureFixture[str]) -> None:
    from atgrpo.cli.main import main

    assert main(["fit", "--config", "debug", "trainer.devices=2", "--dry-run"]) == 2
    assert "expected one process (trainer=fsdp runs several)" in capfd.readouterr().err
