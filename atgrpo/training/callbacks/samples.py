"""One sampled tree per iteration as text in TensorBoard."""

from __future__ import annotations

from typing import Any

import lightning as L

from atgrpo.training.report import tree_text


class SampledTree(L.Callback):
    """The iteration's first tree that taught something, else its first.

    Args:
        every: Iterations between texts.
    """

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"samples got every={every}, expected 1 or more")
        self.every = every

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Writes the text to the logger if that takes text."""
        latest = trainer.datamodule.latest
        writer: Any = getattr(trainer.logger, "experiment", None)
        if latest.number % self.every or not latest.rollouts or not hasattr(writer, "add_text"):
            return
        taught = (r for r in latest.rollouts if any(turn.advantage for turn in r.turns))
        text = tree_text(next(taught, latest.rollouts[0]))
        # Four spaces make it a block of code in Markdown, whatever the model wrote.
        writer.add_text("rollout/tree", "\n".join(f"    {line}" for line in text.splitlines()), latest.number)
