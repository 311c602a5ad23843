"""The example of a team that is written elsewhere, trained and scored by the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from atgrpo.cli.main import main
from atgrpo.paths import recipes_dir

RECIPE = str(recipes_dir() / "own" / "endpoint" / "endpoint.yaml")
SMALL = [
    "policy.model=tiny",
    "engine=transformers",
    "prompts_per_iteration=2",
    "sampler.trajectories=2",
    "max_prompt_tokens=2000",
    "heldout.problems=2",
    "trainer.precision=32-true",
]


@pytest.mark.parametrize(
    "overrides",
    [
        ["workers=2", "agents.checker=other"],
        ["advantage=grpo", "batching.aggregation=trajectory_mean", "sampler.credit=outcome"],
    ],
    ids=["two-policies", "grpo"],
)
def test_the_example_does_one_iteration_and_is_scored(
    overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", RECIPE, f"run.root={tmp_path}", "iterations=1", *SMALL, *overrides]) == 0
    shown = capsys.readouterr().out
    assert "iteration 1/1" in shown and "held-out success (greedy, 2 problems)" in shown


def test_evaluate_and_rollout_play_the_same_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--config", RECIPE, "--problems", "2", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "held-out success (greedy, 2 problems)" in shown and "held-out success (sampled, 2 problems)" in shown
    assert main(["rollout", "--config", RECIPE, *SMALL]) == 0
    shown = capsys.readouterr().out
    assert shown.count("turn 1, writer (solver)") == shown.count("turn 1, checker (solver)") == 2


def test_the_plan_counts_plays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", RECIPE, "--dry-run", *SMALL]) == 0
    assert "writer (solver): 2 prompts x 1 turns x K=2 = 4 responses <= 16 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.play._target_=recipes.own.endpoint.team.paly"], "cannot import recipes.own.endpoint.team.paly"),
        (["env.play=recipes.own.endpoint.team.play"], "env.play: got"),
    ],
)
def test_a_mistyped_play_is_refused_in_one_line(
    overrides: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", RECIPE, *SMALL, *overrides]) == 2
    assert message in capsys.readouterr().err
