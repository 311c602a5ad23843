"""Iterations as Lightning drives them: real policies, real engine, real checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from atgrpo.cli.build import build
from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.runs import CHECKPOINTS, RunFolder
from atgrpo.training.callbacks.checkpoint import saved_iterations
from atgrpo.training.checkpoints import CheckpointError
from tests.training.runs import SETTINGS, fit, snapshot

TEN = ["data.train_size=10", "prompts_per_iteration=2", "iterations=5"]
LINEAR = ["schedule.name=linear", "optimizer.lr=0.01"]


def assert_equal(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def differ(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(a[name], b[name]) for name in a)


# Lightning's own counter adds up the steps of all optimisers: PyTorch Lightning issue 17958.
@pytest.mark.parametrize("env", ["tests.cli.letters.Letters", "tests.training.runs.Flat", "tests.training.runs.Over"])
def test_five_iterations_of_two_policies_are_five_steps_each_also_where_nothing_is_learned(
    env: str, tmp_path: Path
) -> None:
    run = fit(tmp_path, *TEN, *LINEAR, f"env._target_={env}")
    assert run.data.finished == 5
    assert run.trainer.global_step == 10
    for policy in ("a", "b"):
        assert run.seen.rates[policy] == pytest.approx([0.01, 0.008, 0.006, 0.004, 0.002])
    assert [scheduler.last_epoch for scheduler in run.module.lr_schedulers()] == [5, 5]  # type: ignore[union-attr]
    logged = EventAccumulator(str(tmp_path)).Reload().Scalars("rollout/tokens")
    assert [event.step for event in logged] == [0, 1, 2, 3, 4]
    rows = [len(rollout.turns) for rollout in run.data.latest.rollouts]
    advantages = [turn.advantage for rollout in run.data.latest.rollouts for turn in rollout.turns]
    assert rows == ([0, 0] if env.endswith("Over") else [6, 6])  # K=3 for each of two agents
    assert any(advantages) is env.endswith("Letters")
    before, after = run.seen.started_with, snapshot(run.trainer)
    for policy in ("a", "b"):
        assert differ(before[policy][0], after[policy][0]) is env.endswith("Letters")


def test_a_stopped_run_goes_on_with_the_samples_and_steps_that_were_left(tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole", *TEN, *LINEAR)
    first = fit(tmp_path / "parts", *TEN, *LINEAR, stop=2)
    second = fit(tmp_path / "parts", *TEN, *LINEAR, resume=True)
    assert (first.data.finished, second.data.finished) == (2, 5)
    # One rollout for each iteration: none is repeated or left out by loading a checkpoint.
    assert (whole.seen.trees, first.seen.trees, second.seen.trees) == ([2] * 5, [2] * 2, [2] * 3)
    assert (len(first.seen.samples), len(second.seen.samples)) == (4, 6)
    assert first.seen.samples + second.seen.samples == whole.seen.samples
    assert len(set(whole.seen.samples)) == 10
    for policy in ("a", "b"):
        assert first.seen.rates[policy] + second.seen.rates[policy] == pytest.approx(whole.seen.rates[policy])
        assert_equal(
            dict(second.module.policies[policy].state_dict()), dict(whole.module.policies[policy].state_dict())
        )


@pytest.mark.parametrize(
    ("shape", "short", "rest"),
    [("linear", [0.01, 0.005], [0.005, 0.0025]), ("cosine", [0.01, 0.005], [0.005, 0.0014644661])],
)
def test_a_finished_run_that_is_made_longer_goes_on_at_the_longer_schedules_rate(
    shape: str, short: list[float], rest: list[float], tmp_path: Path
) -> None:
    settings = ["data.train_size=10", "optimizer.lr=0.01", f"schedule.name={shape}"]
    first = fit(tmp_path, *settings, "iterations=2")
    second = fit(tmp_path, *settings, "iterations=4", resume=True)
    for policy in ("a", "b"):
        assert first.seen.rates[policy] == pytest.approx(short)
        assert second.seen.rates[policy] == pytest.approx(rest)


@pytest.mark.parametrize("roles", [[], ["agents.tool=b", "agents.reasoner=a"]], ids=["the same", "changed roles"])
def test_weights_and_moments_of_every_policy_come_back_as_they_were_saved(roles: list[str], tmp_path: Path) -> None:
    first = fit(tmp_path, *TEN, stop=2)
    second = fit(tmp_path, *TEN, *roles, resume=True, stop=3)
    assert list(second.module.policies) == (["b", "a"] if roles else ["a", "b"])
    left = snapshot(first.trainer)
    assert differ(left["a"][0], left["b"][0])
    for policy in ("a", "b"):
        weights, moments = second.seen.started_with[policy]
        assert_equal(weights, left[policy][0])
        assert_equal(moments, left[policy][1])
        assert {float(state["step"]) for state in moments.values()} == {2.0}
        assert any(state["exp_avg_sq"].any() for state in moments.values())
    assert not torch.equal(left["a"][1][0]["exp_avg"], left["b"][1][0]["exp_avg"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("agents.reasoner=c", r"got optimisers of \['a', 'b'\], expected \['a', 'c'\]$"),
        ("agents.reasoner=a", r"got optimisers of \['a', 'b'\], expected \['a'\]$"),
        ("policies.b.trainable=false", r"got optimisers of \['a', 'b'\], expected \['a'\]$"),
        ("policies.b.model=tiny-untied", r"policies\.b\."),
    ],
    ids=lambda c: c,
)
def test_a_checkpoint_of_other_policies_does_not_load(change: str, said: str, tmp_path: Path) -> None:
    fit(tmp_path, *TEN, stop=1)
    with pytest.raises(CheckpointError, match=f"^the checkpoint does not fit the recipe's policies: .*{said}"):
        fit(tmp_path, *TEN, change, resume=True)


def test_a_judge_that_crashes_on_everything_gives_no_metric_and_no_crash(tmp_path: Path) -> None:
    run = fit(tmp_path, *TEN, "env._target_=tests.training.runs.Unjudged", "schedule.name=linear")
    assert run.data.finished == 5
    assert [scheduler.last_epoch for scheduler in run.module.lr_schedulers()] == [5, 5]  # type: ignore[union-attr]
    logged = EventAccumulator(str(tmp_path)).Reload()
    tags = set(logged.Tags()["scalars"])
    assert [event.value for event in logged.Scalars("rollout/tool/missing_rewards")] == [1.0] * 5
    assert not tags & {"rollout/success", "rollout/success_turn_1", "rollout/tool/reward", "turn_1/tool/team_reward"}
    assert not any(math.isnan(event.value) for tag in tags for event in logged.Scalars(tag))


def test_three_samples_fill_iterations_of_four_in_turn(tmp_path: Path) -> None:
    run = fit(tmp_path, "data.train_size=3", "prompts_per_iteration=4", "iterations=3")
    assert run.seen.trees == [4] * 3
    assert [len(set(run.seen.samples[i : i + 3])) for i in range(0, 12, 3)] == [3] * 4
    twice = run.data.latest.rollouts
    assert len({rollout.sample.id for rollout in twice}) == 3
    assert len({turn.group for rollout in twice for turn in rollout.turns}) == 4 * 2  # two agents


class Fails(L.Callback):
    """Before the last optimiser step of an iteration, when all of its minibatches are handed out."""

    def __init__(self, iteration: int, how: type[BaseException]) -> None:
        self.iteration, self.how, self.steps = iteration, how, 0

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.steps += 1
        if trainer.datamodule.finished == self.iteration and self.steps % 2 == 0:
            raise self.how


@pytest.mark.parametrize("how", [RuntimeError, KeyboardInterrupt])
def test_a_failure_in_the_last_step_of_an_iteration_saves_nothing_of_it(
    how: type[BaseException], tmp_path: Path
) -> None:
    parts = build(load(find_recipe("debug"), [*SETTINGS, "iterations=4"]))
    trainer = parts.trainer(RunFolder(tmp_path, None))
    trainer.callbacks.insert(0, Fails(2, how))
    with pytest.raises((how, SystemExit)):
        trainer.fit(parts.module(), datamodule=parts.datamodule())
    assert [saved.iteration for saved in saved_iterations(tmp_path / CHECKPOINTS)] == [2]
