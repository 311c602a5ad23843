"""Results as tables in Markdown."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.marl.cells import Result
from benchmarks.stats import iqm_interval, probability_of_improvement

SHOWN = ("return", "completion", "coverage", "collisions", "box_distance")
BASELINE = "mappo"


def tables(results: Iterable[Result], at: Sequence[int]) -> str:
    """For each task, the scores nearest to each number of frames in ``at``: interquartile mean over seeds and its
    95% interval, the deviation of the return over seeds, and the probability of a better return than MAPPO's.
    """
    by_task: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_task[result.task].append(result)
    return "\n\n".join(_table(task, rows, frames) for task, rows in by_task.items() for frames in at)


def _table(task: str, rows: Sequence[Result], frames: int) -> str:
    cells: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for row in rows:
        cells[row.system, row.algorithm].append(row)
    nearest = {cell: _nearest(own, frames) for cell, own in cells.items()}
    names = [name for name in SHOWN if any(name in row.metrics for row in rows)]
    header = ["algorithm", "seeds", *names, "std of return", f"P(return > {BASELINE})", "frames/s"]
    lines = [f"**{task}, {frames:,} frames of each seed**", "", _line(header), _line(["---"] * len(header))]
    baseline = [row.metrics["return"] for row in nearest.get(("atgrpo", BASELINE), [])]
    for (system, algorithm), own in nearest.items():
        returns = [row.metrics["return"] for row in own]
        values = [str(iqm_interval([[row.metrics[n] for row in own]])) if n in own[0].metrics else "–" for n in names]
        compared = baseline and (system, algorithm) != ("atgrpo", BASELINE)
        better = str(probability_of_improvement(returns, baseline)) if compared else "–"
        label = algorithm if system == "atgrpo" else f"{system} {algorithm}"
        deviation = f"{statistics.stdev(returns):.3f}" if len(returns) > 1 else "–"
        speed = f"{own[0].frames_per_second:,.0f}"
        lines.append(_line([label, str(len(own)), *values, deviation, better, speed]))
    return "\n".join(lines)


def _nearest(rows: Sequence[Result], frames: int) -> list[Result]:
    best = min(rows, key=lambda row: abs(row.frames - frames)).frames
    return [row for row in rows if row.frames == best]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
