from __future__ import annotations

import pytest

import atgrpo.data.base as base
from atgrpo.data.sokoban import SokobanLevels
from atgrpo.envs.sokoban import Level


def test_sizes_boxes_and_moves_are_as_set() -> None:
    samples = SokobanLevels(6, boxes=2, min_moves=4, max_moves=9, train_size=60).split("train")
    for sample in samples:
        rows = sample.prompt.split("\n")
        assert len(rows) == 6
        assert all(row[0] == row[-1] == "#" and len(row) == 6 for row in rows)
        assert rows[0] == rows[-1] == "######"
        assert sum(map(sample.prompt.count, "$*")) == sum(map(sample.prompt.count, ".*+")) == 2
        assert 4 <= sample.meta["moves"] == len(sample.answer) == Level.parse(sample.prompt).shortest <= 9
    assert len({sample.meta["moves"] for sample in samples}) > 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 6.5}, "size got 6.5, expected a whole number"),
        ({"size": 3}, "size got 3, expected at least 4"),
        ({"boxes": 0}, "boxes got 0, expected 1 to 14 for size 6"),
        ({"size": 4, "boxes": 3}, "boxes got 3, expected 1 to 2 for size 4"),
        ({"walls": -0.1}, "walls got -0.1"),
        ({"min_moves": 0}, "min_moves got 0"),
        ({"max_moves": 1}, "max_moves got 1, expected at least min_moves, 2"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SokobanLevels(**settings)  # type: ignore[arg-type]


def test_more_levels_than_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MISSES", 400)
    with pytest.raises(ValueError, match="heldout_size got 999, expected at most about"):
        SokobanLevels(5, walls=0.0, heldout_size=999).split("heldout")
    with pytest.raises(ValueError, match="train_size got 1, expected at most about 0"):
        SokobanLevels(4, boxes=2, walls=0.0, train_size=1, min_moves=9).split("train")
