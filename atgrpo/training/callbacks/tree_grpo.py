"""Tree-GRPO (arXiv:2509.21240): a rollout against all rollouts of its prompt and against those of its tree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from atgrpo.functional.advantages import group_ids_from_keys, tree_group_advantages
from atgrpo.rollout.grouping import prompt
from atgrpo.training.callbacks.advantage import AdvantageCallback, with_scores, without_unscored
from atgrpo.training.callbacks.lineage import parents, rollout_returns
from atgrpo.types import Rollout


class TreeGRPO(AdvantageCallback):
    """``A = z over the prompt + z over the tree`` of a leaf; a step takes the mean over the leaves below it.

    A rollout is a way from the root to a leaf: a candidate from which nothing was grown. A prompt's trees are those
    of the same sample in one iteration; a sample comes several times when there are fewer of them than
    ``prompts_per_iteration``. Where it comes once, both terms are the same. Needs ``sampler=tree``.

    Args:
        scale_by_std: Divide by the standard deviation of the group (ddof=1).
        eps: Added to the standard deviation.
    """

    needs = "tree"
    orders = ("sequence",)
    credits = ("continuation", "backup")

    def __init__(self, scale_by_std: bool = True, eps: float = 1e-6) -> None:
        self.estimate = partial(tree_group_advantages, scale_by_std=scale_by_std, eps=eps)

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores every step; all trees of a prompt are one group.

        Raises:
            ValueError: the rollouts are trajectories.
        """
        turns = self.turns_of(rollouts)
        trees = group_ids_from_keys([prompt(turn) for turn in turns])
        samples = group_ids_from_keys([turn.key.sample_id for turn in turns])
        above = parents(turns)
        advantages = self.estimate(rollout_returns(turns, above), above, trees, samples)
        return without_unscored(with_scores(rollouts, samples.tolist(), advantages.tolist()))
