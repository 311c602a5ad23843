"""Group-relative weighting: MAPPO whose agents learn more or less from a step, given what it was worth to the team."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from atgrpo.functional.relative import Form, Guard, RelativeWeights, relative_weights
from atgrpo.marl.callbacks.algorithm import alike
from atgrpo.marl.callbacks.weighted import Weighted, weight_metrics


class Relative(Weighted):
    """``w_i = f(A_i * A_group / sum_j A_j)`` on standardised advantages; ``ones`` is MAPPO to the last bit.

    Args:
        form: f; see ``atgrpo.functional.relative``.
        guard: What happens where the sum is near zero.
        eps: How near.
        limit: Bound of the relative advantage, None for none.
        gamma: Discount.
        lam: Lambda of GAE.
    """

    def __init__(
        self,
        form: Form = "softmax",
        guard: Guard = "floor",
        eps: float = 0.1,
        limit: float | None = 5.0,
        gamma: float = 0.99,
        lam: float = 0.95,
    ) -> None:
        super().__init__(gamma, lam)
        self.settings: dict[str, Any] = {"form": form, "guard": guard, "eps": eps, "limit": limit}
        relative_weights(torch.zeros(1, 1), torch.zeros(1), **self.settings)  # refuses what makes no sense

    def weigh(self, own: Tensor, group: Tensor) -> Tensor:
        """By what each agent's share of the team's advantage is."""
        found = relative_weights(own, group, **self.settings)
        self.latest = relative_metrics(found, own, group, self.settings["eps"])
        return found.weights


def relative_metrics(found: RelativeWeights, own: Tensor, group: Tensor, eps: float) -> dict[str, Tensor]:
    """Of the weights and of what they were made of, seed by seed."""
    return weight_metrics(found.weights) | {
        "sum_near_zero": (found.sums.abs() < eps).float().flatten(1).mean(1),
        "corr_relative_own": correlation(found.relative, own),
        "corr_group_sum": correlation(group, found.sums),
    }


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's, within each seed; 0 where one of both does not vary."""
    rows = a.flatten(1), b.flatten(1)
    x, y = (v - v.mean(1, keepdim=True) for v in rows)
    scale = (x.square().sum(1) * y.square().sum(1)).sqrt()
    fixed = torch.cat([alike(v) for v in rows], 1).any(1)
    return torch.where(fixed, 0.0, (x * y).sum(1) / scale.clamp(min=1e-12))
