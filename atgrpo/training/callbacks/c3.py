"""C3 (arXiv:2603.06859): what a response changes while all that came before it stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atgrpo.training.callbacks.rloo import RLOO
from atgrpo.types import Rollout


class C3(RLOO):
    """``A_j = R_j`` minus the mean R of the node's other candidates; needs ``sampler=tree``.

    The candidates of a node answer the same context, and R is the outcome after the same policies have played on from
    each (``credit: continuation``), so the difference is the response's own effect.
    """

    needs = "tree"
    credits = ("continuation",)

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores by node.

        Raises:
            ValueError: the rollouts are trajectories, whose contexts differ.
        """
        self.turns_of(rollouts)
        return super().on_rollout_end(trainer, pl_module, rollouts)
