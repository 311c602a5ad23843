"""The command line on recipes of the classical side."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from atgrpo.cli.main import main

SMALL = [
    "envs=8",
    "steps=10",
    "iterations=2",
    "seeds=2",
    "task.time_limit=8",
    "ppo.minibatch=40",
    "ppo.epochs=2",
    "heldout.episodes=4",
    "heldout.every=1",
    "metrics.every=1",
    "checkpoint.every=1",
    "run.name=one",
]
RELATIVE = "algorithm=relative"
TAGS = {
    "rollout/return",
    "rollout/return/seed_1",
    "rollout/group_return",
    "rollout/completion",
    "rollout/coverage",
    "rollout/collisions",
    "rollout/length",
    "learn/policy_loss",
    "learn/value_loss",
    "learn/group_value_loss",
    "learn/entropy",
    "learn/clip_fraction",
    "learn/approx_kl",
    "learn/actor_grad_norm",
    "learn/action_std",
    "weights/mean",
    "weights/negative",
    "weights/sum_near_zero",
    "weights/corr_relative_own",
    "weights/corr_group_sum",
    "heldout/return",
    "heldout/completion",
    "heldout/coverage/seed_0",
    "frames_per_second",
    "seconds/rollout",
    "seconds/train",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    assert main(["fit", "--config", "navigation", f"run.root={root}", *SMALL, RELATIVE]) == 0
    return root / "navigation" / "one"


def options(run: Path, *changed: str) -> list[str]:
    return ["--config", "navigation", f"run.root={run.parent.parent}", *SMALL, RELATIVE, *changed]


def test_tensorboard_shows_what_the_field_expects_against_frames(run: Path) -> None:
    events = EventAccumulator(str(run))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= TAGS
    assert [e.step for e in events.Scalars("learn/policy_loss")] == [80, 160]
    assert [e.step for e in events.Scalars("heldout/return")] == [0, 80, 160]


def test_a_finished_run_has_nothing_left_and_a_longer_one_goes_on(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--resume", "last", *options(run)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["fit", "--resume", "last", *options(run, "iterations=3")]) == 0
    assert "iteration 3/3" in capsys.readouterr().out


def test_trained_teams_are_scored_and_filmed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--checkpoint", str(run), "--problems", "4", *options(run)]) == 0
    assert "completion" in capsys.readouterr().out
    only = ["--agents", "agent_0", "agent_2"]
    assert main(["evaluate", "--checkpoint", str(run), "--problems", "4", *options(run), *only]) == 0
    assert main(["rollout", "--checkpoint", str(run), "--gif", str(tmp_path / "new" / "team.gif"), *options(run)]) == 0
    assert (tmp_path / "new" / "team.gif").read_bytes().startswith(b"GIF89a")


def test_a_dry_run_says_what_it_adds_up_to(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--dry-run", *options(run)]) == 0
    assert "160 frames of each of 2 teams" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["seeds=0"], "seeds: got 0, expected 1 or more"),
        (["algorithm.form=cubic"], "algorithm.form"),
        (["prompts_per_iteration=2"], "prompts_per_iteration"),
        (["task=nowhere"], "nowhere"),
        (["ppo.epochs=0"], "ppo.epochs: got 0"),
        (["trainer=fsdp"], "trainer: got a strategy"),
        (["algorithm={_target_: atgrpo.training.callbacks.grpo.GRPO}"], "expected an Algorithm"),
    ],
)
def test_a_mistake_is_one_line(changed: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *options(run, *changed)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


def test_a_checkpoint_of_other_teams_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--checkpoint", str(run), *options(run, "task.agents=2")]) == 2
    assert "task: got" in capsys.readouterr().err
    assert main(["fit", "--resume", str(run), *options(run, "steps=5")]) == 2
    assert "steps: got 5, expected the 10 of the run" in capsys.readouterr().err
    assert main(["evaluate", "--config", "debug", "--checkpoint", str(run)]) == 2
    assert "checkpoint: got robots' of the run" in capsys.readouterr().err
    assert main(["export", "--to", str(run / "new"), *options(run)]) == 2
    assert "language models" in capsys.readouterr().err


def test_text_cannot_be_filmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "--config", "debug", "--gif", str(tmp_path / "x.gif")]) == 2
    assert "expected a recipe with a task" in capsys.readouterr().err


def test_boxes_are_pushed_by_every_algorithm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for algorithm in ("dec_ppo", "mappo", "relative", "agreement"):
        settings = [*SMALL, "iterations=1", f"algorithm={algorithm}", f"run.name={algorithm}", f"run.root={tmp_path}"]
        assert main(["fit", "--config", "box_pushing", *settings]) == 0
        assert "box_distance" in capsys.readouterr().out


def test_a_damaged_checkpoint_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "navigation" / "broken"
    shutil.copytree(run, broken)
    for state in (broken / "checkpoints").glob("*/state.ckpt"):
        state.write_bytes(state.read_bytes()[:1000])
    for command in (["evaluate", "--checkpoint", str(broken)], ["fit", "--resume", str(broken)]):
        assert main([*command, *options(run, "iterations=9")]) == 2
        assert "cannot be read" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["rollout", "--index", "5000"], "--index: got 5000, expected 0 to 2047"),
        (["rollout", "--seed", "7"], "--seed: got 7, expected none"),
        (["evaluate", "--seed", "-1"], "--seed: got -1, expected 0 or more"),
        (["evaluate", "--problems", "300000"], "--problems: got 300000, expected 1 to 2048"),
    ],
)
def test_what_robots_cannot_be_asked_is_refused(
    command: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *options(run)]) == 2
    assert message in capsys.readouterr().err


def test_another_seed_is_other_states(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in ("0", "0", "3"):
        assert main(["evaluate", "--problems", "4", "--seed", seed, "--checkpoint", str(run), *options(run)]) == 0
        said.append(capsys.readouterr().out.splitlines()[-1])
    assert said[0] == said[1] != said[2]


def test_a_checkpoint_that_was_moved_is_scored(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = tmp_path / "far" / "away" / "iteration_00002"
    shutil.copytree(next((run / "checkpoints").glob("*")), moved)
    assert main(["evaluate", "--problems", "2", "--checkpoint", str(moved), *options(run)]) == 0
    assert "(2 episodes)" in capsys.readouterr().out
