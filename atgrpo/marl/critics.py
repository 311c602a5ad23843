"""Value functions, of one agent's view or of all agents' together, and the scale that they learn on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from atgrpo.marl.networks import BatchedMLP, PerAgent
from atgrpo.marl.types import Spec

View = Literal["local", "central"]
LOCAL, CENTRAL, GROUP = 1, 2, 3
"""Streams of the critics' initial weights."""


class Critic(nn.Module):
    """The agents' values, from each one's own observation (``local``) or from all (``central``).

    Args:
        seeds: Of the teams.
        spec: Of the task.
        view: What an agent's value is told from.
        hidden: Sizes of the hidden layers.
        normalise: Keep running moments of the targets and learn them at mean 0 and deviation 1.
    """

    def __init__(self, seeds: Sequence[int], spec: Spec, view: View, hidden: Sequence[int], normalise: bool) -> None:
        super().__init__()
        self.network: nn.Module
        if view == "local":
            sizes = [spec.observation, *hidden, 1]
            self.network = PerAgent(seeds, spec.agents, sizes, shared=True, gain=1.0, stream=LOCAL)
        else:
            self.network = Together(seeds, spec, hidden, spec.agents, stream=CENTRAL)
        self.scale = Scale(len(seeds), normalise)

    def forward(self, observations: Float[Tensor, "S B N D"]) -> Float[Tensor, "S B N"]:
        """On the scale that is learned."""
        values: Tensor = self.network(observations)
        return values.squeeze(-1) if values.dim() == 4 else values


class GroupCritic(nn.Module):
    """The team's value, from all observations; a network of its own, so that the agents' critic is as without it."""

    def __init__(self, seeds: Sequence[int], spec: Spec, hidden: Sequence[int], normalise: bool) -> None:
        super().__init__()
        self.network = Together(seeds, spec, hidden, 1, stream=GROUP)
        self.scale = Scale(len(seeds), normalise)

    def forward(self, observations: Float[Tensor, "S B N D"]) -> Float[Tensor, "S B"]:
        """On the scale that is learned."""
        return cast(Tensor, self.network(observations)).squeeze(-1)


class Together(nn.Module):
    """One network of a seed on all agents' observations side by side."""

    def __init__(self, seeds: Sequence[int], spec: Spec, hidden: Sequence[int], outputs: int, stream: int) -> None:
        super().__init__()
        sizes = [spec.agents * spec.observation, *hidden, outputs]
        self.mlp = BatchedMLP([(seed,) for seed in seeds], sizes, 1.0, stream)

    def forward(self, observations: Float[Tensor, "S B N D"]) -> Float[Tensor, "S B outputs"]:
        """Row by row."""
        return self.mlp(observations.flatten(2))


class Scale(nn.Module):
    """Running mean and deviation of each seed's value targets, corrected for their start at 0 (arXiv:2103.01955).

    Args:
        seeds: How many.
        on: False leaves values as they are.
        decay: Of the moments at an update.
    """

    def __init__(self, seeds: int, on: bool, decay: float = 0.99999) -> None:
        super().__init__()
        self.on = on
        self.decay = decay
        for name in ("mean", "square", "share"):
            self.register_buffer(name, torch.zeros(seeds, dtype=torch.float64))
        self.mean: Tensor
        self.square: Tensor
        self.share: Tensor

    def update(self, targets: Float[Tensor, "*S"]) -> None:
        """Takes an iteration's targets into the moments."""
        rows = targets.double().flatten(1)
        for moment, now in ((self.mean, rows.mean(1)), (self.square, rows.square().mean(1)), (self.share, 1.0)):
            moment.mul_(self.decay).add_((1 - self.decay) * now)

    def _moments(self, like: Tensor) -> tuple[Tensor, Tensor]:
        known = self.share.clamp(min=1e-12)
        mean, square = self.mean / known, self.square / known
        # Targets that are all alike are of deviation 0, which must not blow up what is divided by it.
        deviation = (square - mean**2).clamp(min=1e-4).sqrt()
        deviation = torch.where(self.share > 0, deviation, 1.0)
        shape = [len(mean)] + [1] * (like.dim() - 1)
        return mean.view(shape).to(like.dtype), deviation.view(shape).to(like.dtype)

    def normalised(self, values: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
        """From the task's scale to the learned one."""
        if not self.on:
            return values
        mean, deviation = self._moments(values)
        return (values - mean) / deviation

    def restored(self, values: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
        """From the learned scale to the task's."""
        if not self.on:
            return values
        mean, deviation = self._moments(values)
        return values * deviation + mean
