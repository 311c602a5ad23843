"""Weights without a quotient: an agent learns more from a step on which it and the team agree."""

from __future__ import annotations

import torch
from torch import Tensor

from atgrpo.functional.relative import agreement_weights
from atgrpo.marl.callbacks.relative import correlation
from atgrpo.marl.callbacks.weighted import Weighted, weight_metrics


class Agreement(Weighted):
    """``w_i = clip(1 + strength * sign(A_i) * A_group, 0, 2)`` on standardised advantages; 0 is MAPPO.

    Args:
        strength: How much the team has to say.
        gamma: Discount.
        lam: Lambda of GAE.
    """

    def __init__(self, strength: float = 1.0, gamma: float = 0.99, lam: float = 0.95) -> None:
        super().__init__(gamma, lam)
        self.strength = strength
        agreement_weights(torch.zeros(1, 1), torch.zeros(1), strength=strength)  # refuses what makes no sense

    def weigh(self, own: Tensor, group: Tensor) -> Tensor:
        """By whether agent and team found the step better than expected, or worse."""
        weights = agreement_weights(own, group, strength=self.strength)
        together = correlation(group.unsqueeze(-1).expand_as(own), own)
        self.latest = weight_metrics(weights) | {"corr_group_own": together}
        return weights
