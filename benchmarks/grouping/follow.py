"""Trained policies played in another way: in each other's roles, or together after each was trained alone."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atgrpo.training.evaluation import Mode
from benchmarks.grouping.cells import Cell
from benchmarks.grouping.results import Kind, read, write
from benchmarks.grouping.runner import LOGS, CellFailedError, call, say

SCORE = re.compile(r"held-out success \((greedy|sampled), \d+ problems\): ([\d.]+)%")
MODES: tuple[Mode, ...] = ("sampled", "greedy")
Way = Callable[[Cell], list[list[str]]]
"""Commands that play a cell's policies; the last one prints their scores."""


def swapped(cell: Cell) -> list[list[str]]:
    """Every role is played by the policy of the next one."""
    roles = cell.task.roles
    turned = [f"agents.{role}={roles[(i + 1) % len(roles)]}" for i, role in enumerate(roles)]
    return [_evaluate(cell, ["--checkpoint", cell.folder], turned)]


def trained_alone(cell: Cell) -> list[list[str]]:
    """The policies of the runs in which each role was alone, as a team that has never played together."""
    commands, models = [], ["warm_start.steps=0"]
    for role in cell.task.roles:
        lonely = replace(cell, only=role)
        to = f"{lonely.folder}/exported"
        where = ["--config", lonely.task.recipe, "--checkpoint", lonely.folder, "--to", to]
        commands.append(["python", "-m", "atgrpo", "export", *where, *lonely.overrides()])
        models.append(f"policies.{role}.model={to}/{role}")
    return [*commands, _evaluate(cell, [], models)]


def _evaluate(cell: Cell, checkpoint: Sequence[str], settings: Sequence[str]) -> list[str]:
    score = ["--problems", str(cell.problems), "--seed", str(cell.seed)]
    words = ["python", "-m", "atgrpo", "evaluate", "--config", cell.task.recipe, *checkpoint, *score]
    return [*words, *cell.overrides(), *settings]


def follow_all(cells: Sequence[Cell], results: Path, *, swap: bool, alone: bool) -> list[str]:
    """Plays what has not been played; returns the names of what failed."""
    trained = {result.cell: result for result in read(results) if result.kind == "run"}
    teams = [cell for cell in cells if cell.policies == "per_role" and cell.only is None and cell.name in trained]
    failed = []
    ways: list[tuple[Kind, bool, Way]] = [("swap", swap, swapped), ("alone", alone, trained_alone)]
    for kind, wanted, way in ways:
        for cell in teams if wanted else ():
            before = trained[cell.name]
            if kind == "alone" and any(replace(cell, only=r).name not in trained for r in cell.task.roles):
                continue
            commands = way(cell)
            text = "\n".join(f"OMP_NUM_THREADS={cell.threads} {shlex.join(words)}" for words in commands)
            known = (result for result in read(results) if (result.kind, result.cell) == (kind, cell.name))
            if any(result.command == text for result in known):
                continue
            try:
                result = replace(before, kind=kind, command=text, **_play(cell, kind, commands))
            except CellFailedError as error:
                failed.append(f"{kind} of {cell.name}")
                say(str(error))
                continue
            write(results, result)
            say(f"{kind} of {cell.name}: {result.curve[-1]['sampled']:.1%} sampled")
    return failed


def _play(cell: Cell, kind: str, commands: Sequence[Sequence[str]]) -> dict[str, Any]:
    start, printed = time.perf_counter(), ""
    for number, words in enumerate(commands):
        if "--to" in words:
            shutil.rmtree(words[list(words).index("--to") + 1], ignore_errors=True)
        log = LOGS / f"{cell.name}-{kind}-{number}.log"
        printed = call([sys.executable, *words[1:]], log, threads=cell.threads)
    scores = scores_in(printed)
    line = {"tokens": cell.tokens, "iterations": 0, "seconds": 0.0, **scores, "metrics": {}}
    return {"curve": [line], "wall": round(time.perf_counter() - start, 1)}


def scores_in(printed: str) -> dict[str, float]:
    """Mode -> success, from what ``evaluate`` prints.

    Raises:
        CellFailedError: a mode is missing.
    """
    found = {mode: float(percent) / 100 for mode, percent in SCORE.findall(printed)}
    if set(found) != set(MODES):
        raise CellFailedError(f"evaluate printed the scores {sorted(found)}, expected {sorted(MODES)}")
    return found
