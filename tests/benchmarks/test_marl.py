from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.marl.cells import ALGORITHMS, TASKS, Result, append, read, run_cell
from benchmarks.marl.statistics import improvement, interval, iqm
from benchmarks.marl.tables import tables

TINY = ["envs=4", "steps=5", "ppo.minibatch=20", "ppo.epochs=1", "heldout.episodes=2", "task.time_limit=4"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        ([3.0], 3.0),
        # of five, a quarter is 1.25: (0.75 * 1 + 2 + 0.75 * 3) / 2.5
        ([9.0, 2.0, 1.0, 3.0, -50.0], (0.75 * 1 + 2 + 0.75 * 3) / 2.5),
    ],
)
def test_the_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    assert iqm(values) == pytest.approx(expected)


def test_intervals_hold_the_estimate_and_are_a_point_where_all_agree() -> None:
    low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert low < iqm([1.0, 2.0, 3.0, 4.0, 5.0]) < high
    assert interval([2.0, 2.0]) == (2.0, 2.0)


def test_improvement_by_hand() -> None:
    # 3 beats 1 and 2, 2 beats 1 and ties with 2
    assert improvement([3.0, 2.0], [1.0, 2.0])[0] == pytest.approx(3.5 / 4)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("algorithm", ["dec_ppo", "relative_linear_raw"])
def test_a_cell_trains_all_its_seeds_and_is_read_back(task: str, algorithm: str, tmp_path: Path) -> None:
    results = run_cell(task, algorithm, 2, 40, tmp_path, TINY)
    assert {(r.seed, r.frames) for r in results} == {(0, 0), (1, 0), (0, 40), (1, 40)}
    append(results, tmp_path / "new" / "results.jsonl")
    assert list(read([tmp_path / "new" / "results.jsonl"])) == results
    assert f"**{task}, 40 frames" in tables(results, [40])


def test_a_table_compares_with_mappo_at_the_nearest_frames() -> None:
    rows = [
        Result("atgrpo", "navigation", name, seed, frames, {"return": value + seed, "completion": 0.5}, 10_000.0)
        for name, value in (("mappo", 0.0), ("relative", 5.0))
        for seed in (0, 1)
        for frames in (0, 190, 400)
    ]
    text = tables(rows, [200])
    assert "| relative | 2 | 5.500 [5.000, 6.000] | 0.500 [0.500, 0.500] | 0.707 | 100% [100%, 100%] | 10,000 |" in text
    assert set(ALGORITHMS) >= {"mappo", "relative"}
