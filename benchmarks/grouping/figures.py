"""Learning curves of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.grouping.results import Result, arms_of, by_seed
from benchmarks.grouping.stats import iqm

POINTS = 61


def plot_curves(results: Sequence[Result], task: str, to: Path) -> None:
    """Sampled success against tokens and against time: IQM over seeds, with the range of the seeds."""
    figure, (tokens, seconds) = plt.subplots(1, 2, figsize=(12, 4.4), sharey=True, layout="constrained")
    arms = arms_of(results, task)
    colours = plt.get_cmap("tab20" if len(arms) > 10 else "tab10")
    for number, arm in enumerate(arms):
        runs = list(by_seed(results, task, arm).values())
        style = {"color": colours(number % colours.N), "linestyle": "-" if "-tree-" in arm else "--"}
        budget = min(run.tokens for run in runs)
        grid = np.linspace(0, budget, POINTS)
        values = np.array([[run.at(t) for t in grid] for run in runs])
        tokens.plot(grid, iqm(values, axis=0), label=arm, **style)
        tokens.fill_between(grid, values.min(0), values.max(0), color=style["color"], alpha=0.08, linewidth=0)
        end = min(run.curve[-1]["seconds"] for run in runs)
        times = np.linspace(0, end, POINTS)
        seconds.plot(times, iqm([[run.after(t) for t in times] for run in runs], axis=0), **style)
    tokens.set(title=f"{task}: sampled held-out success", xlabel="sampled tokens")
    seconds.set(title="the same by time", xlabel="seconds of rollouts and training")
    for axis in (tokens, seconds):
        axis.grid(alpha=0.3)
    tokens.legend(fontsize=7)
    # Without the version of matplotlib the same picture is the same file.
    figure.savefig(to, dpi=110, metadata={"Software": None})
    plt.close(figure)
