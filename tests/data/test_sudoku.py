from __future__ import annotations

import pytest

import atgrpo.data.puzzles as puzzles
from atgrpo.data.sudoku import Sudokus
from atgrpo.envs.sudoku import solutions


@pytest.mark.parametrize(("side", "blanks"), [(4, 1), (4, 4), (4, 11), (9, 30), (9, 50)])
def test_sides_and_blanks_are_as_set_and_there_is_one_solution(side: int, blanks: int) -> None:
    for sample in Sudokus(side, blanks, train_size=10).split("train"):
        rows = sample.prompt.split("\n")
        assert [len(row) for row in rows] == [side] * side
        assert sample.prompt.count(".") == len(sample.answer) == sample.meta["blanks"] == blanks
        (solution,) = solutions("".join(rows))
        assert sample.answer == "".join(
            digit for digit, cell in zip(solution, "".join(rows), strict=True) if cell == "."
        )


def test_all_solved_grids_of_four_occur() -> None:
    solved = {
        solutions("".join(sample.prompt.split("\n")))[0] for sample in Sudokus(4, 3, train_size=3000).split("train")
    }
    assert len(solved) == 288


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"side": 6}, r"side got 6, expected one of \(4, 9\)"),
        ({"blanks": 0}, "blanks got 0, expected 1 to 15"),
        ({"side": 9, "blanks": 81}, "blanks got 81, expected 1 to 80"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sudokus(**settings)


def test_more_grids_than_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puzzles, "MISSES", 200)
    with pytest.raises(ValueError, match="train_size got 1, expected at most about 0"):
        Sudokus(4, 13, train_size=1).split("train")
