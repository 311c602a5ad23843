from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.plan_path import PathGrids
from atgrpo.envs.plan_path import Maze, PlanPathTeam
from tests.envs.puzzles import MAZE, act, seen, team

SAMPLES = PathGrids(train_size=64, heldout_size=64).split("heldout")


@pytest.mark.parametrize(
    ("plan", "local", "grid"),
    [
        ("D", 0.24, "..#\nS#.\n..G"),
        ("DU", 0.0, MAZE),
        ("R", 0.0, ".S#\n.#.\n..G"),  # farther off than at the start, which is worth no less
        ("U", -0.02, MAZE),
        ("DR", 0.22, "..#\nS#.\n..G"),
        ("DDRU", 0.70, "..#\n.#.\n.SG"),
        ("DDRRU", 0.72, "..#\n.#S\n..G"),  # over the goal and on: it must end there
        ("DDRR", 0.96, None),
        ("DDRRD", 0.94, None),
    ],
)
def test_a_plan_is_paid_for_the_way_it_shortens(plan: str, local: float, grid: str | None) -> None:
    env = team(PlanPathTeam, MAZE)
    result = act(env, "planner", plan)
    assert result.local_reward == pytest.approx(local)
    assert (result.team_reward, env.done, env.success) == ((1.0, True, 1.0) if grid is None else (0.0, False, 0.0))
    if grid is not None:
        assert seen(env, "planner").split("\nPlanner")[0] == grid


def test_the_next_plan_goes_on_from_where_the_last_one_stopped() -> None:
    env = team(PlanPathTeam, MAZE)
    result = act(env, "planner", "DDLRR")
    assert result.info == {"illegal": "blocked at move 3"}
    assert seen(env, "planner") == "..#\n.#.\nS.G\nPlanner: DDLRR blocked at move 3"
    assert act(env, "planner", "RR").done


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 63), st.lists(st.text("UDLR", min_size=1, max_size=8), max_size=6))
def test_success_is_standing_on_the_goal_as_an_independent_walk_finds(index: int, plans: list[str]) -> None:
    prompt = SAMPLES[index].prompt
    cells = {(r, c): cell for r, row in enumerate(prompt.split("\n")) for c, cell in enumerate(row)}
    place = next(key for key, cell in cells.items() if cell == "S")
    env = team(PlanPathTeam, prompt)
    for plan in plans:
        if env.done:
            break
        act(env, "planner", plan)
        for letter in plan:
            after = (place[0] + (letter == "D") - (letter == "U"), place[1] + (letter == "R") - (letter == "L"))
            if cells.get(after, "#") == "#":
                break
            place = after
        assert env.done == (cells[place] == "G")


def test_any_size_is_read() -> None:
    assert Maze.parse("SG").shortest == 1
    assert Maze.parse("S" + "." * 98 + "G").shortest == 99
    long = Maze.parse("\n".join(["S" + "." * 49, *["." * 50] * 48, "." * 49 + "G"]))
    assert len(long.solution(long.start) or "") == 98


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S#G", "no solution"),
        ("..G", "grid got 0 cells 'S', expected one"),
        ("SGG", "grid got 2 cells 'G', expected one"),
        ("S x G", "grid got ' '"),
        ("", "grid got nothing"),
    ],
)
def test_grids_that_cannot_be_solved_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        team(PlanPathTeam, text)
