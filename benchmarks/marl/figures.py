"""Learning curves of the classical side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.marl.results import Arm, Run
from benchmarks.stats import iqm


def plot_curves(runs: Mapping[Arm, Sequence[Run]], metrics: Sequence[str], to: Path) -> None:
    """Held-out metrics against frames: IQM over seeds, with the range of the seeds."""
    figure, axes = plt.subplots(1, len(metrics), figsize=(4.6 * len(metrics), 4), layout="constrained", squeeze=False)
    colours = plt.get_cmap("tab10")
    for number, (arm, own) in enumerate(runs.items()):
        frames = sorted(set.intersection(*(set(run.curve) for run in own)))
        for axis, name in zip(axes[0], metrics, strict=True):
            values = np.array([[run.curve[f][name] for f in frames] for run in own])
            axis.plot(frames, iqm(values, axis=0), label=f"{arm} ({len(own)} seeds)", color=colours(number % 10))
            axis.fill_between(frames, values.min(0), values.max(0), color=colours(number % 10), alpha=0.1, linewidth=0)
            axis.set(title=name.replace("_", " "), xlabel="frames of a team")
            axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    # Without the version of matplotlib the same picture is the same file.
    figure.savefig(to, dpi=110, metadata={"Software": None})
    plt.close(figure)
