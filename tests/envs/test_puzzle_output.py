from __future__ import annotations

import pytest

from atgrpo.envs.plan_path import PlanPathTeam
from atgrpo.envs.puzzle import PROGRESS
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Run, Sandbox
from atgrpo.types import StepResult
from tests.envs.puzzles import MAZE, StandIn, act, seen, team


@pytest.mark.parametrize(
    ("blank_lines", "result"),
    [(1018, StepResult(1.0, pytest.approx(PROGRESS), True)), (1019, StepResult(0.0, -1.0, False))],
)
def test_an_output_that_may_be_cut_holds_no_plan(blank_lines: int, result: StepResult) -> None:
    env = team(PlanPathTeam, MAZE, sandbox=Sandbox(Limits(output_kb=1)), decider="tool")
    # 1023 bytes are all there is; of 1024 nobody knows what came after DDRR.
    assert act(env, "tool", f"```python\nprint('\\n' * {blank_lines} + 'DDRR')\n```") == result


def test_the_team_reads_that_a_program_printed_too_much() -> None:
    env = team(PlanPathTeam, MAZE, sandbox=StandIn(Run("DDRR\n", "", 0, None, 0.1), Limits(output_kb=5 / 1024)))
    assert act(env, "tool", "```python\nprint('DDRR')\n```") == StepResult(0.0, -1.0, False)
    assert seen(env, "planner") == f"{MAZE}\nTool: program printed too much"
