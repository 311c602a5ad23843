from __future__ import annotations

import pytest

import atgrpo.data.base as base
from atgrpo.data.plan_path import PathGrids
from atgrpo.envs.plan_path import Maze


def test_sizes_walls_and_moves_are_as_set() -> None:
    samples = PathGrids(3, 7, walls=0.2, min_moves=3, max_moves=5, train_size=200).split("train")
    assert {len(sample.prompt.split("\n")) for sample in samples} == {3}
    assert {len(row) for sample in samples for row in sample.prompt.split("\n")} == {7}
    assert {sample.meta["moves"] for sample in samples} == {3, 4, 5}
    assert all(Maze.parse(sample.prompt).shortest == sample.meta["moves"] == len(sample.answer) for sample in samples)
    walls = sum(sample.prompt.count("#") for sample in samples) / (200 * 19)
    assert 0.15 < walls < 0.25


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rows": 0}, "rows and columns got 0 and 4, expected at least two cells"),
        ({"rows": 1, "columns": 1}, "rows and columns got 1 and 1"),
        ({"rows": 2.5}, "rows got 2.5, expected a whole number"),
        ({"min_moves": 16}, r"min_moves got 16, expected under 4 \* 4 cells"),
        ({"walls": 1.0}, "walls got 1.0, expected 0 to below 1"),
        ({"min_moves": 0}, "min_moves got 0, expected at least 1"),
        ({"min_moves": 5, "max_moves": 4}, "max_moves got 4, expected at least min_moves, 5"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PathGrids(**settings)  # type: ignore[arg-type]


def test_more_grids_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="train_size got 100, expected at most about"):
        PathGrids(2, 2, walls=0.0, train_size=100).split("train")
    with pytest.raises(ValueError, match="train_size got 1, expected at most about 0"):
        PathGrids(4, 4, walls=0.0, min_moves=7, train_size=1).split("train")


def test_grids_that_are_too_rare_to_be_found_are_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PATIENCE", 0.05)
    with pytest.raises(ValueError, match=r"train_size got 2, .* about 0: \d+ draws in 0\.05 s gave no other"):
        PathGrids(60, 60, min_moves=300, train_size=2).split("train")
