from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.marl.cells import ALGORITHMS, TASKS, Result, append, read, run_cell
from benchmarks.marl.tables import tables

TINY = ["envs=4", "steps=5", "ppo.minibatch=20", "ppo.epochs=1", "heldout.episodes=2", "task.time_limit=4"]


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
    assert (
        "| relative | 2 | 5.500 [5.000, 6.000] | 0.500 [0.500, 0.500] | 0.707 | 1.000 [1.000, 1.000] | 10,000 |" in text
    )
    assert set(ALGORITHMS) >= {"mappo", "relative"}
