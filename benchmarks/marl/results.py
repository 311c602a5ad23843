"""Raw results, one line of JSON for each seed and each score, and the learning curves that they make up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

POINTS = 101


@dataclass(frozen=True, slots=True)
class Result:
    """One seed's held-out score after some frames."""

    system: str
    task: str
    algorithm: str
    seed: int
    frames: int
    metrics: dict[str, float]
    frames_per_second: float
    """Of all seeds that were trained together, over the whole run without scores."""


@dataclass(frozen=True, slots=True)
class Run:
    """One seed's scores."""

    seed: int
    curve: Mapping[int, Mapping[str, float]]
    """Frames -> metric -> value, in order."""
    frames_per_second: float

    def at(self, metric: str, frames: float) -> float:
        """A metric at a number of frames, on the straight line between the scores before and after it."""
        return float(np.interp(frames, list(self.curve), [score[metric] for score in self.curve.values()]))

    def mean(self, metric: str, frames: int) -> float:
        """Over the curve from its start to ``frames``: high where a run is both fast and good."""
        places = np.linspace(min(self.curve), frames, POINTS)
        return float(np.mean([self.at(metric, place) for place in places]))


@dataclass(frozen=True, slots=True)
class Arm:
    """An algorithm of a system on a task."""

    system: str
    task: str
    algorithm: str

    def __str__(self) -> str:
        return self.algorithm if self.system == "atgrpo" else f"{self.system} {self.algorithm}"


def append(results: Sequence[Result], to: Path) -> None:
    """One JSON line for each."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with to.open("a") as file:
        for result in results:
            file.write(json.dumps(asdict(result)) + "\n")


def read(file: Path) -> list[Result]:
    """What was written, in order.

    Raises:
        ValueError: the file has a line that is no result.
    """
    found = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            found.append(Result(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{file}, line {number}: got no result ({error}), expected what `run` writes") from error
    return found


def curves(results: Iterable[Result]) -> dict[Arm, list[Run]]:
    """Arm -> its runs by seed; arms and seeds in order, the last score counts where one was made twice."""
    found: dict[Arm, dict[int, dict[int, Result]]] = {}
    for r in results:
        found.setdefault(Arm(r.system, r.task, r.algorithm), {}).setdefault(r.seed, {})[r.frames] = r
    arms = sorted(found, key=lambda arm: (arm.task, arm.system, arm.algorithm))
    return {arm: [_run(seed, found[arm][seed]) for seed in sorted(found[arm])] for arm in arms}


def _run(seed: int, scores: Mapping[int, Result]) -> Run:
    curve = {frames: scores[frames].metrics for frames in sorted(scores)}
    return Run(seed, curve, next(iter(scores.values())).frames_per_second)
