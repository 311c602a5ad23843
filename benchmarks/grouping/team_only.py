"""Environments of the alpha ablation: what an agent earns for itself is taken away, the team's reward stays."""

from __future__ import annotations

from dataclasses import replace

from atgrpo.envs import math, plan_path, sudoku
from atgrpo.envs.base import Environment
from atgrpo.types import Action, StepResult


class TeamOnly(Environment):
    """``local_reward`` is 0, but for one that could not be judged."""

    def step(self, agent: str, action: Action) -> StepResult:
        result = super().step(agent, action)  # type: ignore[safe-super]  # of the task that is mixed in behind
        return result if result.local_reward is None else replace(result, local_reward=0.0)


class PlanPath(TeamOnly, plan_path.PlanPathTeam):
    """Plan-path."""


class Sudoku(TeamOnly, sudoku.SudokuTeam):
    """Sudoku."""


class Math(TeamOnly, math.MathTeam):
    """Word problems."""
