"""Plain GRPO (arXiv:2402.03300) on whole trajectories: one return, one vote, broadcast to every step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atgrpo.functional.advantages import group_ids_from_keys, group_relative_advantages
from atgrpo.rollout.grouping import GroupKey, prompt, trajectory
from atgrpo.training.callbacks.advantage import AdvantageCallback, credits_of, with_scores, without_unscored
from atgrpo.types import Rollout, Turn


class OneVote(AdvantageCallback):
    """``A = (R - mean) / (std + eps)`` over votes; the base of every estimator on returns of trajectories.

    The turns of a trajectory, or of an agent in it, are one vote: its return R is the mean credit of its steps, which
    under ``credit: outcome`` is the credit of each. A vote with a step that could not be judged is left out, and none
    of its steps keeps a credit.

    Args:
        scale_by_std: Divide by the standard deviation over the group's votes (ddof=1).
        eps: Added to the standard deviation.
    """

    needs = "parallel"
    vote: GroupKey
    """Turns that are one vote."""
    key: GroupKey
    """Votes that are one group."""

    def __init__(self, scale_by_std: bool = True, eps: float = 1e-6) -> None:
        self.estimate = partial(group_relative_advantages, scale_by_std=scale_by_std, eps=eps)

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores votes, then gives each of their turns the vote's advantage.

        Raises:
            ValueError: the rollouts are trees, which have no trajectories.
        """
        turns = self.turns_of(rollouts)
        groups, advantages = self.scores(turns)
        return without_unscored(with_scores(rollouts, groups.tolist(), advantages.tolist()))

    def scores(self, turns: Sequence[Turn]) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
        """(group, advantage) of each turn; NaN where its vote is left out."""
        groups = group_ids_from_keys([type(self).key(turn) for turn in turns])
        of_turn, returns = votes(turns, type(self).vote)
        of_vote = torch.zeros(len(returns), dtype=torch.long).index_copy_(0, of_turn, groups)
        return groups, self.estimate(returns, of_vote)[of_turn]


class GRPO(OneVote):
    """Trajectories of a prompt against each other; needs ``sampler=parallel``."""

    vote = staticmethod(trajectory)
    key = staticmethod(prompt)


def votes(turns: Sequence[Turn], vote: GroupKey) -> tuple[Int[Tensor, " N"], Float[Tensor, " V"]]:
    """The vote that each turn belongs to, and each vote's return: the mean credit of its turns, NaN if one has none."""
    of_turn = group_ids_from_keys([vote(turn) for turn in turns])
    n = int(of_turn.max()) + 1 if turns else 0
    counts = torch.bincount(of_turn, minlength=n)
    return of_turn, torch.zeros(n, dtype=torch.float64).index_add_(0, of_turn, credits_of(turns)) / counts
