"""GiGPO (arXiv:2505.10978): groups of trajectories and, within them, groups of steps taken from the same state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atgrpo.functional.advantages import group_ids_from_keys
from atgrpo.rollout.grouping import anchor
from atgrpo.training.callbacks.advantage import credits_of
from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.types import Turn


class GiGPO(GRPO):
    """``A = A_episode + weight * A_step``; needs ``sampler=parallel``.

    A_episode is GRPO's. A_step compares a step's credit with those of the prompt instance in which the same agent saw
    the same prompt token by token, in whichever trajectory and turn; it is 0 where nobody else did. The return from a
    step on is the credit rule's (``return_to_go``; undiscounted).

    Args:
        weight: Of A_step (the paper's omega).
        scale_by_std: Divide either by the standard deviation of its group (ddof=1).
        eps: Added to the standard deviation.
    """

    def __init__(self, weight: float = 1.0, scale_by_std: bool = True, eps: float = 1e-6) -> None:
        super().__init__(scale_by_std, eps)
        self.weight = weight

    def scores(self, turns: Sequence[Turn]) -> tuple[Int[Tensor, " N"], Float[Tensor, " N"]]:
        """As of GRPO; a trajectory that is left out is in no group of steps either."""
        groups, episode = super().scores(turns)
        returns = torch.where(episode.isnan(), torch.nan, credits_of(turns))
        step = self.estimate(returns, group_ids_from_keys([anchor(turn) for turn in turns]))
        return groups, episode + self.weight * step
