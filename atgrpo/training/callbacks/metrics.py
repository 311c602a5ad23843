"""What TensorBoard shows of every iteration. The x axis is the iteration: updates made before it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import lightning as L

from atgrpo.training.rollout_metrics import rollout_metrics, sampled_tokens


class IterationMetrics(L.Callback):
    """Gathers rollout, policy, engine and time metrics at the end of each iteration and logs those that are numbers."""

    def __init__(self) -> None:
        self.total_tokens = 0
        self.values: dict[str, float] = {}
        """Of the latest iteration; the console reads them."""
        self._train_start = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The running total."""
        return {"total_tokens": self.total_tokens}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it."""
        self.total_tokens = state_dict["total_tokens"]

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Training time starts."""
        self._train_start = time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs everything."""
        latest = trainer.datamodule.latest
        seconds = {**latest.seconds, "train": time.perf_counter() - self._train_start}
        tokens = sampled_tokens(latest.rollouts)
        self.total_tokens += tokens
        values = rollout_metrics(latest.rollouts)
        values["rollout/tokens"] = float(tokens)
        values["rollout/tokens_total"] = float(self.total_tokens)
        values["rollout/tokens_per_second"] = tokens / seconds["rollout"]
        values |= {f"seconds/{phase}": value for phase, value in seconds.items()}
        values |= {f"engine/{name}": value for name, value in latest.engine.items()}
        for policy, stats in pl_module.pop_stats().items():
            values |= {f"policy/{policy}/{name}": value for name, value in stats.items()}
        self.values = finite(values)
        log(trainer, pl_module, self.values, step=latest.number)


def log(trainer: Any, pl_module: Any, values: Mapping[str, float], step: int) -> None:
    """For other callbacks, and for the run's logger at ``step``: Lightning's own steps are not iterations."""
    pl_module.log_dict(values, logger=False)
    if trainer.logger is not None and values:
        trainer.logger.log_metrics(values, step=step)


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Without those that have no value (NaN: there was nothing to average)."""
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}
