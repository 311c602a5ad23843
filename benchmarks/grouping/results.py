"""Raw results: one line of JSON for each run, from which reports are made again byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

INFO = "/info/"
Kind = Literal["run", "swap", "alone"]


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a run, or of trained policies that were played in another way."""

    cell: str
    kind: Kind
    task: str
    arm: str
    seed: int
    tokens: int
    """The budget."""
    command: str
    """Does it again; several lines where it takes several commands."""
    version: dict[str, str]
    config: dict[str, Any]
    """Resolved; of the run, or of the one whose policies were played."""
    wall: float
    """Seconds from start to end, everything included."""
    curve: list[dict[str, Any]]

    def at(self, tokens: float, mode: str = "sampled") -> float:
        """Success at a number of tokens, on the straight line between the scores before and after it."""
        return float(np.interp(tokens, [line["tokens"] for line in self.curve], [line[mode] for line in self.curve]))

    def after(self, seconds: float) -> float:
        """The same at a time of rollouts and training; NaN once the run was over."""
        times, values = zip(*((line["seconds"], line["sampled"]) for line in self.curve), strict=True)
        return float(np.interp(seconds, times, values, right=np.nan))

    def metric(self, name: str, tokens: float | None = None) -> float | None:
        """A training metric that was watched: its last mean, or that over the part which holds a number of tokens."""
        lines = self.curve if tokens is None else [line for line in self.curve[1:] if line["tokens"] >= tokens][:1]
        return lines[-1]["metrics"].get(name) if lines else None


def read(file: Path) -> list[Result]:
    """All of a file, the last one where a cell was run again; none without a file."""
    lines = file.read_text().splitlines() if file.is_file() else []
    found = [Result(**json.loads(line)) for line in lines]
    return list({(result.kind, result.cell): result for result in found}.values())


def write(file: Path, result: Result) -> None:
    """Appends a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps(asdict(result), sort_keys=True) + "\n")


def by_seed(results: Iterable[Result], task: str, arm: str, kind: str = "run") -> dict[int, Result]:
    """Seed -> the result of an arm on a task."""
    found = [r for r in results if (r.task, r.arm, r.kind) == (task, arm, kind)]
    return {r.seed: r for r in sorted(found, key=lambda r: r.seed)}


def arms_of(results: Sequence[Result], task: str) -> list[str]:
    """Arms that were run on a task."""
    return sorted({r.arm for r in results if r.task == task and r.kind == "run" and "-only_" not in r.arm})


def reported_of(results: Sequence[Result], task: str) -> list[str]:
    """Metrics that the task's environment reports of itself, such as the share of tool calls."""
    lines = (line for r in results if r.task == task and r.kind == "run" for line in r.curve)
    return sorted({name for line in lines for name in line["metrics"] if INFO in name})


def readable(metric: str) -> str:
    """``solver: tool`` for ``rollout/solver/info/tool``."""
    return metric.removeprefix("rollout/").replace(INFO, ": ")
