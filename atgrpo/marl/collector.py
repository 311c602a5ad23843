"""Plays every seed's team for some steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from atgrpo.marl.actors import Actor
from atgrpo.marl.environments import Environments, Step
from atgrpo.marl.types import Experience

Judge = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""Observations [S, B, N, D] -> the agents' values [S, B, N], and the team's [S, B] where somebody tells them."""


@torch.no_grad()
def collect(
    environments: Environments, actor: Actor, judge: Judge, steps: int, draws: Sequence[torch.Generator]
) -> Experience:
    """``steps`` steps in every environment, each seed's by its own generator."""
    seen: list[Tensor] = []
    actions: list[Tensor] = []
    logprobs: list[Tensor] = []
    answers: list[Step] = []
    for _ in range(steps):
        seen.append(environments.observations)
        action, logprob = actor.act(environments.observations, draws)
        answers.append(environments.step(action, draws))
        actions.append(action)
        logprobs.append(logprob)
    observations, reached = torch.stack(seen, 1), torch.stack([a.observations for a in answers], 1)
    values, group_values = _judged(judge, observations)
    next_values, next_group_values = _judged(judge, reached)
    return Experience(
        observations=observations,
        actions=torch.stack(actions, 1),
        logprobs=torch.stack(logprobs, 1),
        rewards=torch.stack([a.rewards for a in answers], 1),
        group_rewards=torch.stack([a.group_rewards for a in answers], 1),
        next_observations=reached,
        terminated=torch.stack([a.terminated for a in answers], 1),
        ended=torch.stack([a.ended for a in answers], 1),
        values=values,
        next_values=next_values,
        group_values=group_values,
        next_group_values=next_group_values,
    )


def _judged(judge: Judge, observations: Tensor) -> tuple[Any, Any]:
    """Values of ``observations`` [S, T, E, N, D] in their shape."""
    lead = observations.shape[:3]
    values, group = judge(observations.flatten(1, 2))
    return values.view(*lead, -1), None if group is None else group.view(lead)
