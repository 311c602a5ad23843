"""TreeRL (arXiv:2506.11902): a step's value against its tree's and against that of the step before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atgrpo.functional.advantages import group_ids_from_keys, tree_value_advantages
from atgrpo.rollout.grouping import prompt
from atgrpo.training.callbacks.advantage import AdvantageCallback, with_scores, without_unscored
from atgrpo.training.callbacks.lineage import parents, rollout_returns
from atgrpo.types import Rollout


class TreeRL(AdvantageCallback):
    """``A = V(s) - V(root) + V(s) - V(parent)``; needs ``sampler=tree``.

    V(s) is the mean return of the rollouts through s: the ways from the root to a candidate from which nothing was
    grown. The paper divides by the root of their number because a shared step is trained once with each of them; here
    it is trained once.
    """

    needs = "tree"
    orders = ("sequence",)
    credits = ("continuation", "backup")

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores every step; a tree is one group.

        Raises:
            ValueError: the rollouts are trajectories.
        """
        turns = self.turns_of(rollouts)
        trees = group_ids_from_keys([prompt(turn) for turn in turns])
        above = parents(turns)
        advantages = tree_value_advantages(rollout_returns(turns, above), above, trees)
        return without_unscored(with_scores(rollouts, trees.tolist(), advantages.tolist()))
