"""Groupings, samplers and credits against each other: ``python -m benchmarks.grouping --help``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

RESULTS = Path("benchmarks/results/grouping")


def main(config: DictConfig) -> None:
    """What ``action`` says; a mistake in the settings is one line."""
    try:
        _act(config)
    except ValueError as error:
        sys.exit(f"error: {error}")


def _act(config: DictConfig) -> None:
    from benchmarks.grouping.cells import expand, read_tasks
    from benchmarks.grouping.follow import follow_all
    from benchmarks.grouping.report import write_report
    from benchmarks.grouping.runner import estimate, missing, run_all, say, span

    settings: Any = OmegaConf.to_container(config, resolve=True)
    if settings["action"] not in ("run", "report", "plan"):
        raise ValueError(f"action got {settings['action']!r}, expected run, report or plan")
    tasks = read_tasks(settings["definitions"])
    cells = expand(settings, tasks)
    file = RESULTS / f"{settings['name']}.jsonl"
    if settings["action"] == "plan":
        todo = missing(cells, file)
        for cell in todo:
            say(f"{cell.name}\n  {cell.command}")
        say(f"{len(cells)} cells, {len(todo)} to run, about {span(estimate(todo, file, settings['jobs']))}")
        return
    failed = []
    if settings["action"] == "run":
        failed = run_all(cells, file, settings["jobs"])
        failed += follow_all(cells, file, swap=settings["swap"], alone=settings["alone"])
    say(f"report: {write_report(file, settings['contrasts'], tasks)}")
    if failed:
        raise SystemExit(f"{len(failed)} cells failed: {', '.join(failed)}; started again, they are tried again")


if __name__ == "__main__":
    hydra.main(version_base="1.3", config_path="conf", config_name="config")(main)()
