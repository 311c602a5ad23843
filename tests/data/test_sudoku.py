from __future__ import annotations

import pytest

import atgrpo.data.base as base
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
        ({"blanks": 0}, "blanks got 0, expected 1 to 12 for side 4"),
        ({"blanks": 13}, "blanks got 13, expected 1 to 12 for side 4"),
        ({"blanks": 2.5}, "blanks got 2.5, expected a whole number"),
        ({"side": 9, "blanks": 65}, "blanks got 65, expected 1 to 64 for side 9"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sudokus(**settings)  # type: ignore[arg-type]


def test_more_grids_than_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MISSES", 5)
    with pytest.raises(ValueError, match=r"heldout_size got 99, expected at most about \d+$"):
        Sudokus(heldout_size=99).split("heldout")


def test_grids_that_are_too_rare_to_be_found_are_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PATIENCE", 0.01)
    with pytest.raises(ValueError, match=r"heldout_size got 9, .* about 0: \d+ draws in 0\.01 s gave no other"):
        Sudokus(9, 56, heldout_size=9).split("heldout")
