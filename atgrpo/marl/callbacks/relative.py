"""Group-relative weighting: MAPPO whose agents learn more or less from a step, given what it was worth to the team."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from atgrpo.functional.relative import Form, Guard, RelativeWeights, relative_weights
from atgrpo.marl.callbacks.algorithm import alike, standardised
from atgrpo.marl.callbacks.mappo import MAPPO
from atgrpo.marl.types import Experience


class Relative(MAPPO):
    """``w_i = f(A_i * A_group / sum_j A_j)`` on standardised advantages; ``ones`` is MAPPO to the last bit.

    A_group is GAE from the group reward and a critic of the team's value, which shares nothing with the agents'.

    Args:
        form: f; see ``atgrpo.functional.relative``.
        guard: What happens where the sum is near zero.
        eps: How near.
        limit: Bound of the relative advantage, None for none.
        gamma: Discount.
        lam: Lambda of GAE.
    """

    group_critic = True

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
        self.latest: dict[str, Tensor] = {}
        """Metric of the latest weights -> its value in each seed."""

    def on_rollout_end(self, trainer: Any, pl_module: Any, experience: Experience) -> Experience:
        """Weights besides, and targets of the team's value."""
        scored = super().on_rollout_end(trainer, pl_module, experience)
        team, following = experience.group_values, experience.next_group_values
        if team is None or following is None or scored.advantages is None:
            raise ValueError("experience got no values of the team, expected those of a group critic")
        raw = self.gae(experience.group_rewards, team, following, experience.terminated, experience.ended)
        group = standardised(raw)
        found = relative_weights(scored.advantages, group, **self.settings)
        self.latest = weight_metrics(found, scored.advantages, group, self.settings["eps"])
        return replace(scored, weights=found.weights, group_targets=raw + team)


def weight_metrics(found: RelativeWeights, own: Tensor, group: Tensor, eps: float) -> dict[str, Tensor]:
    """What tells whether weights do what they should, seed by seed."""
    weights = found.weights.flatten(1)
    return {
        "weight_mean": weights.mean(1),
        "weight_std": weights.std(1),
        "weight_max": weights.abs().amax(1),
        "weight_negative": (weights < 0).float().mean(1),
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
