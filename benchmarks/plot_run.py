"""Plots a run from its own TensorBoard logs, or the success of several beside each other.

python -m benchmarks.plot_run runs/math/2026-01-01_12-00-00 --to figure.png
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

BY_TIME = re.compile(r"\d{4}-\d\d-\d\d_")


def curves(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Tag -> (iterations, values); where a resumed run logged an iteration twice, the later value."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    out = {}
    for tag in events.Tags()["scalars"]:
        values = {event.step: event.value for event in events.Scalars(tag)}
        out[tag] = (sorted(values), [values[step] for step in sorted(values)])
    if not out:
        raise SystemExit(f"no TensorBoard scalars in {run}, expected a run's folder")
    return out


def _turns(tags: dict[str, Any], prefix: str) -> list[str]:
    return sorted(tag for tag in tags if tag.startswith(f"{prefix}/success_turn_"))


def plot(run: Path, to: Path) -> None:
    """Success, rewards by agent, and where the time goes."""
    tags = curves(run)
    figure, (success, rewards, seconds) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    _success(success, tags)
    for number, tag in enumerate(_turns(tags, "heldout/greedy")[:-1], start=1):
        success.plot(*tags[tag], "C0o:", label=f"held out, greedy, after turn {number}")
    success.set(title="team success")
    for tag in sorted(t for t in tags if t.startswith("rollout/") and t.endswith("/reward")):
        rewards.plot(*tags[tag], label=tag.split("/")[1])
    rewards.set(title="reward of all candidates, by agent")
    for tag in sorted(t for t in tags if t.startswith("seconds/")):
        seconds.plot(*tags[tag], label=tag.split("/")[1])
    seconds.set(title="seconds", ylim=(0, None))
    _finish(figure, (success, rewards, seconds), to)


def plot_success(runs: list[Path], to: Path) -> None:
    """One panel of success for each run, by its recipe's name, and its own where it was given one."""
    columns = min(len(runs), 3)
    figure, axes = plt.subplots(
        -(-len(runs) // columns), columns, figsize=(13, 3.2 * -(-len(runs) // columns)), layout="constrained"
    )
    used = list(axes.flat)[: len(runs)]
    for axis in axes.flat[len(runs) :]:
        axis.set_axis_off()
    for axis, run in zip(used, runs, strict=True):
        _success(axis, curves(run))
        axis.set(title=name_of(run))
    _finish(figure, used, to)


def name_of(run: Path) -> str:
    """``recipe`` of a folder named by its time, else ``recipe: name``."""
    recipe, name = run.resolve().parts[-2:]
    return recipe if BY_TIME.match(name) else f"{recipe}: {name.replace('_', ' ')}"


def _success(axis: Any, tags: dict[str, Any]) -> None:
    for mode, colour in (("greedy", "C0"), ("sampled", "C1")):
        if f"heldout/{mode}/success" in tags:
            x, y = tags[f"heldout/{mode}/success"]
            low, high = tags[f"heldout/{mode}/low"][1], tags[f"heldout/{mode}/high"][1]
            axis.plot(x, y, f"{colour}o-", label=f"held out, {mode}")
            axis.fill_between(x, low, high, color=colour, alpha=0.15)
    axis.plot(*tags["rollout/success"], "C2-", alpha=0.6, label="training trees")
    axis.set(ylim=(-0.02, 1.02))


def _finish(figure: Any, axes: Sequence[Any], to: Path) -> None:
    for axis in axes:
        axis.set_xlabel("iteration")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.savefig(to, dpi=110)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description="Plot a run from its TensorBoard logs.")
    parser.add_argument("runs", type=Path, nargs="+", help="a run's folder; of several only success is plotted")
    parser.add_argument("--to", type=Path, required=True, help="the figure to write")
    arguments = parser.parse_args()
    if len(arguments.runs) == 1:
        plot(arguments.runs[0], arguments.to)
    else:
        plot_success(arguments.runs, arguments.to)


if __name__ == "__main__":
    main()
