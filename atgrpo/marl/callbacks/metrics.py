"""What TensorBoard and the terminal show of every iteration."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import lightning as L
from torch import Tensor

from atgrpo.marl.actors import GaussianActor
from atgrpo.marl.callbacks.weighted import Weighted


class TeamMetrics(L.Callback):
    """Logs against environment steps of one seed, as the field does, and prints a line now and then.

    Tags are means over the seeds; of several, ``<tag>/seed_<s>`` has each one's.

    Args:
        every: Iterations between two lines in the terminal.
    """

    def __init__(self, every: int = 10) -> None:
        if every < 1:
            raise ValueError(f"metrics.every: got {every}, expected 1 or more")
        self.every = every
        self._start = 0.0

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Training time starts."""
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs everything."""
        latest = trainer.datamodule.latest
        seconds = {**latest.seconds, "train": time.perf_counter() - self._start}
        of_seeds = {f"rollout/{name}": values for name, values in latest.episodes.means().items()}
        of_seeds["rollout/episodes"] = latest.episodes.count
        of_seeds["rollout/step_reward"] = latest.experience.rewards.flatten(1).mean(1)
        of_seeds["rollout/step_group_reward"] = latest.experience.group_rewards.flatten(1).mean(1)
        of_seeds |= {f"learn/{name}": values for name, values in pl_module.pop_stats().items()}
        if isinstance(pl_module.actor, GaussianActor):
            of_seeds["learn/action_std"] = pl_module.actor.log_std.detach().exp().flatten(1).mean(1)
        for callback in trainer.callbacks:
            if isinstance(callback, Weighted):
                of_seeds |= {f"weights/{name}": values for name, values in callback.latest.items()}
        values = by_tag(of_seeds, pl_module.seeds)
        values |= {f"seconds/{phase}": value for phase, value in seconds.items()}
        experience = latest.experience.group_rewards.numel()
        values["frames_per_second"] = experience / sum(seconds.values())
        if trainer.logger is not None:
            trainer.logger.log_metrics(finite(values), step=latest.frames)
        number = trainer.datamodule.finished
        if number % self.every == 0 or number == trainer.max_epochs:
            print(_line(number, trainer.max_epochs, latest.frames, values))


def by_tag(of_seeds: Mapping[str, Tensor], seeds: tuple[int, ...]) -> dict[str, float]:
    """Means over the seeds that have a value, and each seed's own where there are several."""
    values = {}
    for name, of_seed in of_seeds.items():
        values[name] = float(of_seed.nanmean())
        if len(seeds) > 1:
            values |= {f"{name}/seed_{s}": v for s, v in zip(seeds, of_seed.tolist(), strict=True)}
    return values


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Without those that have no value."""
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _line(number: int, of: int, frames: int, values: Mapping[str, float]) -> str:
    names = ("return", "group_return", "completion", "coverage", "collisions", "box_distance", "length")
    shown = {name: values.get(f"rollout/{name}") for name in names}
    parts = [f"{name} {value:.2f}" for name, value in shown.items() if value is not None and not math.isnan(value)]
    speed = f"{values['frames_per_second']:,.0f} frames/s"
    return f"iteration {number}/{of} | {frames:,} frames | {' '.join(parts) or 'no whole episode yet'} | {speed}"
