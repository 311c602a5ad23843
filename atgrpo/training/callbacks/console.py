"""What a person sees in the terminal: a bar while trees grow, a bar while policies learn, a line per iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atgrpo.training.callbacks.hooks import RolloutCallback
from atgrpo.training.callbacks.metrics import IterationMetrics
from atgrpo.training.say import bar, say


class Console(RolloutCallback):
    """Bars only on a terminal, lines everywhere. Needs an ``IterationMetrics`` in front of it."""

    def __init__(self, metrics: IterationMetrics, agents: Mapping[str, str]) -> None:
        self.metrics = metrics
        self.agents = agents
        self._bar: Any = None

    def on_rollout_start(self, trainer: Any, trees: int) -> None:
        """Opens the bar of trees."""
        number = trainer.datamodule.finished + 1
        self._open(total=trees, desc=f"iteration {number}/{trainer.max_epochs} rollouts", unit="tree")

    def on_tree_end(self, trainer: Any) -> None:
        """One more."""
        self._bar.update()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Opens the bar of minibatches."""
        number = trainer.datamodule.finished + 1
        total = trainer.num_training_batches
        self._open(total=total, desc=f"iteration {number}/{trainer.max_epochs} training", unit="minibatch")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """One more."""
        self._bar.update()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Prints the iteration's line; ``kept paths`` is success with selection by reward, above what it is without.

        What the judge could not tell is ``?``. Why nothing, or less, could be learned stands behind the line.
        """
        self._close()
        v = self.metrics.values
        kept = _shown(v.get("rollout/success"))
        rewards = " ".join(f"{a} {_shown(v.get(f'rollout/{a}/reward'))}" for a in self.agents)
        phases = " ".join(f"{p} {v[f'seconds/{p}']:.1f}s" for p in ("sync", "rollout", "prepare", "train"))
        say(
            f"iteration {trainer.datamodule.finished}/{trainer.max_epochs} | kept paths {kept} | "
            f"reward {rewards} | {int(v['rollout/tokens'])} tokens at {v['rollout/tokens_per_second']:.0f}/s | {phases}"
            + "".join(f" | {reason}" for reason in _shortcomings(v))
        )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leaves the terminal clean."""
        self._close()

    def _open(self, **settings: Any) -> None:
        self._close()
        self._bar = bar(leave=False, dynamic_ncols=True, **settings)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _shortcomings(values: Mapping[str, float]) -> list[str]:
    found = []
    if overlong := int(values.get("rollout/overlong_prompts", 0)):
        found.append(f"prompts beyond max_prompt_tokens: {overlong}")
    if values.get("group/zero_variance") == 1:
        found.append("nothing learned: in every group all candidates earned the same")
    return found


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"
