"""Learning curves of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.grouping.results import Result, arms_of, by_seed, readable, reported_of
from benchmarks.stats import iqm

POINTS = 61


def plot_curves(results: Sequence[Result], task: str, to: Path) -> None:
    """Sampled success against tokens and against time, and what the environment reports against tokens: IQM over seeds,
    with the range of the seeds.
    """
    reported = reported_of(results, task)
    figure, axes = plt.subplots(1, 2 + len(reported), figsize=(6 * (2 + len(reported)), 4.4), layout="constrained")
    tokens, seconds, *others = axes
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
        for axis, name in zip(others, reported, strict=True):
            steps = [[run.metric(name, t) for t in grid[1:]] for run in runs]
            axis.plot(grid[1:], iqm(steps, axis=0), **style)
    tokens.set(title=f"{task}: sampled held-out success", xlabel="sampled tokens")
    seconds.set(title="the same by time", xlabel="seconds of rollouts and training")
    for axis, name in zip(others, reported, strict=True):
        axis.set(title=f"{readable(name)}, in training", xlabel="sampled tokens")
    seconds.sharey(tokens)
    for axis in axes:
        axis.grid(alpha=0.3)
    tokens.legend(fontsize=7)
    # Without the version of matplotlib the same picture is the same file.
    figure.savefig(to, dpi=110, metadata={"Software": None})
    plt.close(figure)
