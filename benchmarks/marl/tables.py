"""Results as tables in Markdown."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.marl.cells import Result
from benchmarks.marl.statistics import improvement, interval, iqm

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
        values = [_estimate([row.metrics[n] for row in own if n in row.metrics]) for n in names]
        better = "–" if not baseline or (algorithm == BASELINE and system == "atgrpo") else _percent(returns, baseline)
        label = algorithm if system == "atgrpo" else f"{system} {algorithm}"
        deviation = f"{statistics.stdev(returns):.3f}" if len(returns) > 1 else "–"
        speed = f"{own[0].frames_per_second:,.0f}"
        lines.append(_line([label, str(len(own)), *values, deviation, better, speed]))
    return "\n".join(lines)


def _nearest(rows: Sequence[Result], frames: int) -> list[Result]:
    best = min(rows, key=lambda row: abs(row.frames - frames)).frames
    return [row for row in rows if row.frames == best]


def _estimate(values: Sequence[float]) -> str:
    if not values:
        return "–"
    low, high = interval(values)
    return f"{iqm(values):.3f} [{low:.3f}, {high:.3f}]"


def _percent(ours: Sequence[float], theirs: Sequence[float]) -> str:
    better, low, high = improvement(ours, theirs)
    return f"{better:.0%} [{low:.0%}, {high:.0%}]"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
