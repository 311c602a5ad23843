"""What a task says to whoever starts a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import atgrpo.envs.code as code_env
from atgrpo.cli.main import main
from atgrpo.sandbox.runner import Sandbox, SandboxError

SMALL = [
    "policy.model=tiny",
    "engine=transformers",
    "sampler.turns=1",
    "sampler.max_tokens=4",
    "max_prompt_tokens=2000",
]
CODE = ["env=code", "data=simple_functions", "data.train_size=8", "data.heldout_size=4", "agents={coder: solver}"]


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text("defaults: [config, _self_]\n")
    return str(path)


def test_a_sandbox_is_told_of_once_where_programs_run(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "--config", recipe, *SMALL, *CODE, "env.sandbox.limits.seconds=7"]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sandbox:")]
    assert "; 7 s, " in said


def test_a_puzzle_tells_of_it_only_where_a_program_may_run(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    puzzle = ["env=sudoku", "data=sudoku", "data.train_size=8", "data.heldout_size=4"]
    team = ["agents={tool: solver, planner: solver}", *SMALL]
    for only, lines in (("planner", 0), ("tool", 1)):
        alone = ["--problems", "1", "--agents", only, f"env.decider={only}"]
        assert main(["evaluate", "--config", recipe, *alone, *puzzle, *team]) == 0
        assert capsys.readouterr().out.count("sandbox:") == lines


def test_a_machine_that_runs_no_program_is_one_line(
    recipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Sandbox):
        def describe(self) -> str:
            raise SandboxError("no program could be run")

    monkeypatch.setattr(code_env, "Sandbox", Broken)
    assert main(["rollout", "--config", recipe, *SMALL, *CODE, "env.sandbox=null"]) == 2
    assert capsys.readouterr().err == "error: no program could be run\n"


def test_roles_that_cannot_play_without_each_other_are_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["fit", "--config", "calculator", "env.checker=true", "--dry-run"]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (["plan_path", "~agents.critic"], "expected planner or critic too"),
        (["sudoku", "agents={critic: solver}", "env.decider=proposer"], "expected proposer too"),
        (["search", "~agents.searcher"], "expected searcher too"),
    ],
)
def test_a_team_in_which_nobody_can_finish_is_refused(
    settings: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", *settings, "--dry-run"]) == 2
    assert missing in capsys.readouterr().err
