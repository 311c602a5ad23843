from __future__ import annotations

import csv
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from atgrpo.cli.config import ConfigError
from atgrpo.cli.runs import new_run
from tests.training.runs import fit


def test_a_resumed_run_keeps_the_metrics_that_it_had_in_csv(tmp_path: Path) -> None:
    fit(tmp_path, "logger=csv", "iterations=2", stop=1)
    fit(tmp_path, "logger=csv", "iterations=2", resume=True)
    steps = []
    for start in (0, 1):
        with (tmp_path / f"csv/version_{start}/metrics.csv").open() as file:
            steps.append([row["step"] for row in csv.DictReader(file) if row["rollout/success"]])
    assert steps == [["0"], ["1"]]


def named(name: str | None, root: Path) -> DictConfig:
    return OmegaConf.create({"run": {"name": name, "root": str(root)}})


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    folders = {new_run(named(None, tmp_path), Path("some.yaml")) for _ in range(5)}
    assert len(folders) == 5
    assert all(folder.parent == tmp_path / "some" and (folder / "config.yaml").is_file() for folder in folders)


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    new_run(named("mine", tmp_path), Path("some.yaml"))
    with pytest.raises(ConfigError, match=r"mine exists, expected a new run\.name \(or --resume"):
        new_run(named("mine", tmp_path), Path("some.yaml"))
