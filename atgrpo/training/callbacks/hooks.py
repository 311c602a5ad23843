"""Hooks around the collection of rollouts, which Lightning has no name for."""

from __future__ import annotations

from typing import Any

import lightning as L


class RolloutCallback(L.Callback):
    """Told by the datamodule when trees start and end."""

    def on_rollout_start(self, trainer: Any, trees: int) -> None:
        """``trees`` trees are about to be grown; called once more for each round of replacements."""

    def on_tree_end(self, trainer: Any) -> None:
        """One tree is complete."""
