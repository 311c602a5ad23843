"""Decentralised actors: an agent acts on its own observation alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from atgrpo.marl.networks import PerAgent
from atgrpo.marl.types import Spec

ACTOR = 0
"""The stream of an actor's initial weights."""


class Actor(nn.Module):
    """A distribution over actions for each agent of each seed.

    Args:
        seeds: Of the teams.
        spec: Of the task.
        hidden: Sizes of the hidden layers.
        shared: One network for all agents of a team.
    """

    continuous: ClassVar[bool]

    def __init__(self, seeds: Sequence[int], spec: Spec, hidden: Sequence[int] = (64, 64), shared: bool = True) -> None:
        super().__init__()
        sizes = [spec.observation, *hidden, spec.action]
        self.network = PerAgent(seeds, spec.agents, sizes, shared=shared, gain=0.01, stream=ACTOR)

    def act(
        self, observations: Float[Tensor, "S E N D"], draws: Sequence[torch.Generator]
    ) -> tuple[Tensor, Float[Tensor, "S E N"]]:
        """Sampled actions, each seed's by its own generator, and their log-probs."""
        raise NotImplementedError

    def best(self, observations: Float[Tensor, "S E N D"]) -> Tensor:
        """The most likely actions."""
        raise NotImplementedError

    def score(
        self, observations: Float[Tensor, "S B N D"], actions: Tensor
    ) -> tuple[Float[Tensor, "S B N"], Float[Tensor, "S B N"]]:
        """Log-probs of ``actions``, and entropies."""
        raise NotImplementedError


class BuildActor(Protocol):
    """Builds an actor from what a recipe does not say."""

    def __call__(self, *, seeds: Sequence[int], spec: Spec) -> Actor: ...


class GaussianActor(Actor):
    """Independent Gaussians whose standard deviations do not depend on the observation.

    The simulator clamps actions to its range; log-probs are those of what was drawn.

    Args:
        seeds: Of the teams.
        spec: Of the task.
        hidden: Sizes of the hidden layers.
        shared: One network, and one set of deviations, for all agents of a team.
        log_std: Where the logarithms of the deviations start.
    """

    continuous = True

    def __init__(
        self,
        seeds: Sequence[int],
        spec: Spec,
        hidden: Sequence[int] = (64, 64),
        shared: bool = True,
        log_std: float = -0.5,
    ) -> None:
        super().__init__(seeds, spec, hidden, shared)
        shape = (len(seeds), 1, 1 if shared else spec.agents, spec.action)
        self.log_std = nn.Parameter(torch.full(shape, float(log_std)))

    def act(
        self, observations: Float[Tensor, "S E N D"], draws: Sequence[torch.Generator]
    ) -> tuple[Tensor, Float[Tensor, "S E N"]]:
        mean = self.network(observations)
        noise = torch.stack([torch.randn(mean.shape[1:], generator=draw) for draw in draws]).to(mean.device)
        actions = mean + self.log_std.exp() * noise
        return actions, self._logprobs(mean, actions)

    def best(self, observations: Float[Tensor, "S E N D"]) -> Tensor:
        return self.network(observations)

    def score(
        self, observations: Float[Tensor, "S B N D"], actions: Tensor
    ) -> tuple[Float[Tensor, "S B N"], Float[Tensor, "S B N"]]:
        logprobs = self._logprobs(self.network(observations), actions)
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        return logprobs, entropy.expand_as(logprobs)

    def _logprobs(self, mean: Tensor, actions: Tensor) -> Tensor:
        scaled = (actions - mean) * (-self.log_std).exp()
        return (-0.5 * scaled**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


class CategoricalActor(Actor):
    """A softmax over the task's discrete actions."""

    continuous = False

    def act(
        self, observations: Float[Tensor, "S E N D"], draws: Sequence[torch.Generator]
    ) -> tuple[Tensor, Float[Tensor, "S E N"]]:
        logits = self.network(observations).log_softmax(-1)
        uniform = torch.stack([torch.rand(logits.shape[1:], generator=draw) for draw in draws]).to(logits.device)
        gumbel = -(-uniform.clamp(min=1e-20).log()).clamp(min=1e-20).log()
        actions = (logits + gumbel).argmax(-1)
        return actions, logits.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def best(self, observations: Float[Tensor, "S E N D"]) -> Tensor:
        return self.network(observations).argmax(-1)

    def score(
        self, observations: Float[Tensor, "S B N D"], actions: Tensor
    ) -> tuple[Float[Tensor, "S B N"], Float[Tensor, "S B N"]]:
        logits = self.network(observations).log_softmax(-1)
        entropy = -(logits.exp() * logits).sum(-1)
        return logits.gather(-1, actions.unsqueeze(-1)).squeeze(-1), entropy
