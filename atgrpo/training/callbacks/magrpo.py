"""MAGRPO (arXiv:2508.04652): the return from a node on against the mean return of its siblings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.types import Rollout


class MAGRPO(ATGRPO):
    """``A = G - mean(G over the candidates of the same node)``, unscaled; needs ``sampler=tree``.

    G, the return from the candidate to the end, is what its credit says under ``continuation`` (of a playout) and
    ``backup`` (of what was grown below; candidates that were neither final nor kept have none and are left out). The
    team's reward is a level, so the sum of its increments to the end is its last value, but for what siblings share.
    """

    needs = "tree"
    credits = ("continuation", "backup")

    def __init__(self) -> None:
        super().__init__(scale_by_std=False)

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores by node.

        Raises:
            ValueError: the rollouts are trajectories, in which no candidate has siblings.
        """
        self.turns_of(rollouts)
        return super().on_rollout_end(trainer, pl_module, rollouts)
