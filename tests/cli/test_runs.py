from __future__ import annotations

import csv
from pathlib import Path

from tests.training.runs import fit


def test_a_resumed_run_keeps_the_metrics_that_it_had_in_csv(tmp_path: Path) -> None:
    fit(tmp_path, "logger=csv", "iterations=2", stop=1)
    fit(tmp_path, "logger=csv", "iterations=2", resume=True)
    steps = []
    for start in (0, 1):
        with (tmp_path / f"csv/version_{start}/metrics.csv").open() as file:
            steps.append([row["step"] for row in csv.DictReader(file) if row["rollout/success"]])
    assert steps == [["0"], ["1"]]
