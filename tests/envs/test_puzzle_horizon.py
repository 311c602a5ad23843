from __future__ import annotations

import pytest

from atgrpo.envs.plan_path import PlanPathTeam
from atgrpo.envs.sudoku import SudokuTeam
from tests.envs.puzzles import MAZE, SUDOKU, act, team


def test_a_plan_is_read_up_to_the_horizon_and_shown_no_further() -> None:
    env = team(PlanPathTeam, MAZE, horizon=3)
    assert env.demonstrate("critic") == "DDR"
    assert act(env, "critic", "DDRR").team_reward == 0.0
    assert env.demonstrate("critic") == "R"
    assert act(env, "critic", "RUU").team_reward == 0.0  # it must end there


def test_a_horizon_is_for_moves_only_and_at_least_one() -> None:
    with pytest.raises(ValueError, match="horizon got 0, expected None or at least 1"):
        team(PlanPathTeam, MAZE, horizon=0)
    with pytest.raises(ValueError, match=r"horizon got 3, expected None$"):
        team(SudokuTeam, SUDOKU, horizon=3)
