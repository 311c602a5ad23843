"""Several policies in one run: each with its own optimiser and schedule, none touched by another's loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from atgrpo.cli.main import main

SETTINGS = ["engine=transformers", "heldout=null", "agents.tool=a", "agents.reasoner=b", "optimizer.weight_decay=0"]
LETTERS = "env._target_=tests.cli.letters.Letters"


def run(root: Path, name: str, iterations: int, *more: str) -> dict[str, Any]:
    """What the last checkpoint holds."""
    settings = [*SETTINGS, f"run.root={root}", f"run.name={name}", f"iterations={iterations}"]
    assert main(["fit", "--config", "debug", *settings, *more]) == 0
    path = root / "debug" / name / "checkpoints" / f"iteration_{iterations:05d}" / "state.ckpt"
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


def weights(state: dict[str, Any], policy: str) -> dict[str, torch.Tensor]:
    return {name: t for name, t in state["state_dict"].items() if name.startswith(f"policies.{policy}.")}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("env", [LETTERS, "iterations=2"], ids=["learning", "all groups without variance"])
def test_every_policy_takes_its_planned_steps_and_its_schedule_ends_with_the_run(env: str, tmp_path: Path) -> None:
    batching = ["batching.minibatches=2", "batching.ppo_epochs=2", "batching.tokens_per_microbatch=200"]
    state = run(tmp_path, "all", 2, "schedule.name=linear", *batching, env)
    # 2 iterations x 2 passes x 2 steps, however many micro-batches a step was made of.
    assert [s["last_epoch"] for s in state["lr_schedulers"]] == [8, 8]
    assert [s["_last_lr"] for s in state["lr_schedulers"]] == [[0.0], [0.0]]
    for optimizer in state["optimizer_states"]:
        assert {float(s["step"]) for s in optimizer["state"].values()} in ({8.0}, set())
    assert state["RolloutDataModule"]["finished"] == 2


def test_a_policys_step_is_that_of_training_it_alone(tmp_path: Path) -> None:
    both = run(tmp_path, "both", 1, LETTERS)
    alone = run(tmp_path, "alone", 1, LETTERS, "policies.a.trainable=false")
    assert same(weights(both, "b"), weights(alone, "b"))
    assert not same(weights(both, "a"), weights(alone, "a"))


def test_two_seeds_sample_different_things(tmp_path: Path) -> None:
    first = run(tmp_path, "one", 1, LETTERS, "seed=1", "data.seed=0")
    second = run(tmp_path, "two", 1, LETTERS, "seed=2", "data.seed=0")
    assert not same(weights(first, "a"), weights(second, "a"))


def test_a_policy_that_refuses_its_settings_is_one_line_and_no_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", "debug", *SETTINGS, "policy=lora", "policy.r=0", f"run.root={tmp_path}"]) == 2
    assert "error: policies.a: r: got 0, expected 1 or more\n" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_adapters_are_not_laid_on_another_base_or_at_another_scale(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lora = ["policy=lora", "policy.model=tiny"]
    run(tmp_path, "adapters", 1, LETTERS, *lora)
    capfd.readouterr()
    common = ["--config", "debug", *SETTINGS, LETTERS, *lora, f"run.root={tmp_path}"]
    assert main(["fit", *common, "--resume", "last", "iterations=2", "policy.alpha=8"]) == 2
    assert "error: policies.a.alpha: got 8, expected the 32 of the run in " in capfd.readouterr().err
    assert main(["evaluate", *common, "--checkpoint", "last", "--problems", "1", "policy.quantize=4bit"]) == 2
    assert "error: policies.a.quantize: got 4bit, expected the None of the run in " in capfd.readouterr().err
