from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atgrpo.types import Action, StepResult
from benchmarks.grouping import team_only
from benchmarks.grouping.budget import TokenBudget
from tests.cli.letters import Letters
from tests.training.runs import Unjudged, fit

BUDGET = [
    "callbacks.budget._target_=benchmarks.grouping.budget.TokenBudget",
    "callbacks.budget.tokens=60",
    "callbacks.budget.marks=2",
    "callbacks.budget.problems=6",
    "data.heldout_size=4",
    "iterations=50",
    "samples=null",
    "logger=null",
    "agents={tool:a,reasoner:a}",
]


def curve(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "curve.jsonl").read_text().splitlines()]


def test_a_run_ends_with_the_iteration_that_uses_its_budget_up(tmp_path: Path) -> None:
    fitted = fit(tmp_path, *BUDGET)
    lines = curve(tmp_path)
    used = [line["tokens"] for line in lines]
    assert used == sorted(used)
    assert used[0] == 0
    assert used[-2] < 60 <= used[-1]
    assert lines[-1]["iterations"] == fitted.data.finished < 50
    assert 2 <= len(lines) <= 3  # one iteration may cross both marks
    assert all(0 <= line[mode] <= 1 for line in lines for mode in ("sampled", "greedy"))
    assert lines[0]["metrics"] == {}
    assert lines[-1]["metrics"]["group/singleton"] == 0
    assert (lines[0]["seconds"], lines[-1]["seconds"] > 0) == (0, True)


def test_a_run_that_goes_on_writes_the_curve_of_the_run_left_alone(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    fit(whole, *BUDGET)
    fit(parts, *BUDGET, stop=1)
    fit(parts, *BUDGET, resume=True)
    without_time = [[{**line, "seconds": 0} for line in curve(run)] for run in (whole, parts)]
    assert without_time[0] == without_time[1]


@pytest.mark.parametrize("settings", [{"tokens": 0}, {"tokens": 3, "marks": 4}, {"tokens": 9, "modes": ()}])
def test_a_budget_of_nothing_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="budget got"):
        TokenBudget(**settings)


class PaidForLetters(team_only.TeamOnly, Letters):
    """Digits earn nothing."""


class PaidForNothing(team_only.TeamOnly, Unjudged):
    """Nobody knows."""


def test_without_local_rewards_the_team_is_still_paid_and_a_failed_judge_stays_one() -> None:
    assert Letters().step("tool", Action("a1", valid=True)) == StepResult(0.5, 0.125, done=False)
    assert PaidForLetters().step("tool", Action("a1", valid=True)) == StepResult(0.5, 0.0, done=False)
    assert PaidForNothing().step("tool", Action("a1", valid=True)) == StepResult(None, None, done=False)
