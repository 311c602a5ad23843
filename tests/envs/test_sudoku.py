from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.sudoku import Sudokus
from atgrpo.envs.sudoku import Grid, SudokuTeam, lines, solutions
from tests.envs.puzzles import SUDOKU, act, seen, team

WHOLE = "1234 3412 2143 4321"
NINE = "53..7....\n6..195...\n.98....6.\n8...6...3\n4..8.3..1\n7...2...6\n.6....28.\n...419..5\n....8..79"
SAMPLES = Sudokus(blanks=8, train_size=16, heldout_size=16).split("heldout")


@pytest.mark.parametrize(
    ("text", "local", "done"),
    [
        ("1441", 0.96, True),
        (WHOLE, 0.96, True),
        (WHOLE.replace(" ", "\n"), 0.96, True),
        (f"The grid:\n{WHOLE}", 0.96, True),
        (r"\boxed{1,4,4,1}", 0.96, True),
        ("1 2 3 4 | 3 4 1 2\n2 1 4 3 | 4 3 2 1", 0.96, True),
        ("1444", 0.48, False),  # the last 4 clashes with that above it in its box, which counts too
        ("2222", 0.0, False),
        ("1434 3412 2143 4321", -0.02, False),
        ("4321 2143 3412 1234", -0.02, False),
        ("144", -1.0, False),
        ("14411", -1.0, False),
        ("1445", -1.0, False),
        ("1.41", -1.0, False),
        ("", -1.0, False),
    ],
)
def test_a_grid_is_paid_for_the_blanks_without_a_clash(text: str, local: float, done: bool) -> None:
    env = team(SudokuTeam, SUDOKU)
    result = act(env, "planner", text)
    assert result.local_reward == pytest.approx(local)
    assert (result.done, result.team_reward, env.success) == (done, float(done), float(done))


def test_clashes_are_marked_for_the_critic_and_in_later_turns() -> None:
    env = team(SudokuTeam, SUDOKU)
    marked = "1234\n3412\n21x3\n432x"
    act(env, "proposer", "1444")
    assert seen(env, "critic") == f"{SUDOKU}\nProposer: 1444 clashes\n{marked}"
    act(env, "critic", "1444")
    assert seen(env, "proposer") == f"{SUDOKU}\nNow:\n{marked}"
    act(env, "proposer", WHOLE)
    assert seen(env, "critic") == f"{SUDOKU}\nNow:\n{marked}\nProposer: 1441 has no clash"


def test_a_grid_that_changes_a_clue_is_not_taken() -> None:
    env = team(SudokuTeam, SUDOKU)
    act(env, "critic", "1444")
    result = act(env, "critic", "1234 3412 2143 4331")
    assert result.info == {"illegal": "changes the clue at (4,3)"}
    assert result.local_reward == pytest.approx(-0.02)
    assert seen(env, "critic").endswith(
        "Now:\n1234\n3412\n21x3\n432x\nCritic: 1234341221434331 changes the clue at (4,3)"
    )


def test_a_grid_of_nine_is_solved() -> None:
    env = team(SudokuTeam, NINE)
    answer = env.demonstrate("critic")
    assert answer is not None
    assert answer.startswith("468912")
    assert len(answer) == 51
    assert act(env, "critic", answer).done


def test_solutions_are_counted_up_to_the_limit() -> None:
    assert solutions("." * 16, limit=300) == sorted(set(solutions("." * 16, limit=300)))
    assert len(solutions("." * 16, limit=300)) == 288
    assert len(solutions("." * 81)) == 2
    assert solutions("11" + "." * 14) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 15), st.text("1234", min_size=8, max_size=8) | st.none())
def test_success_is_a_grid_that_keeps_rules_and_clues_as_counted_independently(index: int, plan: str | None) -> None:
    sample = SAMPLES[index]
    env = team(SudokuTeam, sample.prompt)
    answer = plan or sample.answer
    act(env, "critic", answer)
    left = iter(answer)
    grid = [[next(left) if cell == "." else cell for cell in row] for row in sample.prompt.split("\n")]
    boxes = [[grid[r + i][c + j] for i in (0, 1) for j in (0, 1)] for r in (0, 2) for c in (0, 2)]
    columns = [list(column) for column in zip(*grid, strict=True)]
    assert env.done == all(sorted(unit) == list("1234") for unit in (*grid, *columns, *boxes))
    assert env.done == (answer == sample.answer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1234\n3412\n2143\n4321", "grid got no blank"),
        ("\n".join(["...."] * 4), "grid got several solutions"),
        ("11..\n....\n....\n....", "grid got no solution"),
        ("123.\n...4\n....\n....", "grid got no solution"),
        ("12.\n...\n...", r"grid got 3 rows of 3 cells, expected a square of one of \(4, 9\)"),
        ("1.3.\n.5..\n....\n....", "grid got '5', expected '1234' and '.'"),
        ("find x", "grid got 'f' in 'find x'"),
    ],
)
def test_grids_without_exactly_one_solution_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        team(SudokuTeam, text)


def test_other_blanks_are_read() -> None:
    grid = Grid.parse(SUDOKU.replace(".", "0").replace("0", "_", 1))
    assert grid.show(grid.start) == SUDOKU == lines(grid.start, 4)
