"""What every algorithm is: a choice of critics, and one method that scores an iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import lightning as L
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atgrpo.functional.gae import generalized_advantages
from atgrpo.marl.critics import View
from atgrpo.marl.types import Experience


class Algorithm(L.Callback):
    """Advantages by GAE from each agent's own rewards and values; every weight 1.

    Args:
        gamma: Discount.
        lam: Lambda of GAE.
    """

    view: ClassVar[View]
    """What the agents' critic sees."""
    group_critic: ClassVar[bool] = False
    """Whether a second critic tells the team's value."""

    def __init__(self, gamma: float = 0.99, lam: float = 0.95) -> None:
        for name, value in (("gamma", gamma), ("lam", lam)):
            if not 0 <= value <= 1:
                raise ValueError(f"algorithm.{name}: got {value}, expected 0 to 1")
        self.gamma = gamma
        self.lam = lam

    def on_rollout_end(self, trainer: Any, pl_module: Any, experience: Experience) -> Experience:
        """The same experience with advantages, weights and targets; advantages are standardised in each seed."""
        ended = (experience.terminated, experience.ended)
        raw = self.gae(experience.rewards, experience.values, experience.next_values, *ended)
        own = standardised(raw)
        return replace(experience, advantages=own, weights=torch.ones_like(own), targets=raw + experience.values)

    def gae(
        self,
        rewards: Float[Tensor, "*S"],
        values: Float[Tensor, "*S"],
        next_values: Float[Tensor, "*S"],
        terminated: Bool[Tensor, "S T E"],
        ended: Bool[Tensor, "S T E"],
    ) -> Float[Tensor, "*S"]:
        """Advantages of agents, or of teams."""
        flags = [f.view(*f.shape, *[1] * (rewards.dim() - f.dim())).expand_as(rewards) for f in (terminated, ended)]
        rows = [x.transpose(0, 1) for x in (rewards, values, next_values, *flags)]
        return generalized_advantages(*rows, gamma=self.gamma, lam=self.lam).transpose(0, 1)


def standardised(values: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Mean 0 and deviation 1 within each seed; all 0 where all are alike, as a single value is."""
    rows = values.flatten(1)
    if rows.shape[1] == 1:
        return torch.zeros_like(values)
    scaled = (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-8)
    return torch.where(alike(rows), 0.0, scaled).view_as(values)


def alike(rows: Float[Tensor, "S M"]) -> Bool[Tensor, "S 1"]:
    """Which rows hold one value only: what rounding leaves of its deviation is not 0, and is nothing to divide by."""
    return rows.amax(1, keepdim=True) == rows.amin(1, keepdim=True)
