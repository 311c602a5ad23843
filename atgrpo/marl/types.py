"""What goes between the rooms of the classical side.

Dimensions: S seeds (teams that learn side by side and never mix), T steps, E environments of a seed, N agents, M
samples of a minibatch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Spec:
    """Sizes that networks need to know of a task."""

    agents: int
    observation: int
    """Of one agent."""
    action: int
    """Coordinates of a continuous action, or the number of discrete ones."""


@dataclass(frozen=True, slots=True)
class Experience:
    """One iteration of every seed; its episodes may have begun before it and may go on after it."""

    observations: Float[Tensor, "S T E N D"]
    actions: Tensor
    """``[S T E N A]`` of a Gaussian before clamping, ``[S T E N]`` integers of a categorical."""
    logprobs: Float[Tensor, "S T E N"]
    rewards: Float[Tensor, "S T E N"]
    """Each agent's own."""
    group_rewards: Float[Tensor, "S T E"]
    next_observations: Float[Tensor, "S T E N D"]
    """Of the state that a step led to, before anything was reset."""
    terminated: Bool[Tensor, "S T E"]
    """The task was completed."""
    ended: Bool[Tensor, "S T E"]
    """Completed, or cut off by the time limit."""
    values: Float[Tensor, "S T E N"]
    next_values: Float[Tensor, "S T E N"]
    group_values: Float[Tensor, "S T E"] | None = None
    next_group_values: Float[Tensor, "S T E"] | None = None
    advantages: Float[Tensor, "S T E N"] | None = None
    """Set, like all below, by the algorithm."""
    weights: Float[Tensor, "S T E N"] | None = None
    """Factor of each agent's loss."""
    targets: Float[Tensor, "S T E N"] | None = None
    """Of the critic."""
    group_targets: Float[Tensor, "S T E"] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Some of an iteration's steps, other ones for each seed; values and targets are on the critics' scale."""

    observations: Float[Tensor, "S M N D"]
    actions: Tensor
    logprobs: Float[Tensor, "S M N"]
    advantages: Float[Tensor, "S M N"]
    weights: Float[Tensor, "S M N"]
    values: Float[Tensor, "S M N"]
    targets: Float[Tensor, "S M N"]
    group_values: Float[Tensor, "S M"] | None
    group_targets: Float[Tensor, "S M"] | None

    def take(self, index: Tensor) -> Samples:
        """Those at ``index`` [S, M], each seed its own."""
        # Rows of one long list: several times faster on CPUs than an index of two dimensions.
        first = torch.arange(len(index), device=index.device).unsqueeze(1) * self.logprobs.shape[1]
        rows = (first + index).flatten()
        changed: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                changed[field.name] = value.flatten(0, 1).index_select(0, rows).view(*index.shape, *value.shape[2:])
        return replace(self, **changed)


@dataclass(frozen=True, slots=True)
class Episodes:
    """Whole episodes that ended in an iteration, seed by seed: metric -> sum over them, and how many there were."""

    sums: dict[str, Float[Tensor, " S"]]
    count: Float[Tensor, " S"]

    def means(self) -> dict[str, Float[Tensor, " S"]]:
        """NaN where a seed finished none."""
        return {name: total / torch.where(self.count > 0, self.count, torch.nan) for name, total in self.sums.items()}
