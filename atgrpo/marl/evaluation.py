"""Plays trained teams without chance, from states that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from atgrpo.marl.actors import Actor
from atgrpo.marl.simulator import Simulator, Starts

Watch = Callable[[Simulator], None]
"""Looks at the simulator before the first step and after each one."""


@dataclass(frozen=True, slots=True)
class Score:
    """Means over the episodes of each seed."""

    metrics: dict[str, Float[Tensor, " S"]]
    episodes: int

    def __str__(self) -> str:
        """Over all seeds; several are given with their range."""
        parts = [f"{name} {_shown(values)}" for name, values in self.metrics.items()]
        return f"{', '.join(parts)} ({self.episodes} episodes)"


def _shown(values: Tensor) -> str:
    mean = f"{values.mean():.3f}"
    return mean if len(values) == 1 else f"{mean} [{values.min():.3f}, {values.max():.3f}]"


@torch.no_grad()
def evaluate(
    simulator: Simulator,
    actor: Actor,
    starts: Starts,
    seeds: int,
    *,
    acting: Sequence[bool] | None = None,
    watch: Watch | None = None,
) -> Score:
    """One episode of every seed from each of ``starts``, by the most likely actions.

    Where ``acting`` is False an agent does nothing: it is there, and pushes nobody.
    """
    count, task = len(starts.positions), simulator.task
    state = starts.take(torch.arange(count).repeat(seeds))
    simulator.place(torch.ones(simulator.envs, dtype=torch.bool, device=state.positions.device), state.positions)
    observations = state.observations
    alive = torch.ones(simulator.envs, dtype=torch.bool, device=observations.device)
    idle = torch.tensor([not a for a in acting or [True] * observations.shape[1]], device=observations.device)
    sums = {name: torch.zeros(simulator.envs, device=observations.device) for name in ("return", "group_return")}
    sums |= {name: torch.zeros_like(sums["return"]) for name in ("length", *task.counted, "completion", *task.final)}
    if watch is not None:
        watch(simulator)
    for _ in range(task.time_limit):
        actions = actor.best(observations.view(seeds, count, *observations.shape[1:])).flatten(0, 1)
        actions = actions.masked_fill(idle.view(1, -1, *[1] * (actions.dim() - 2)), 0)
        step = simulator.advance(actions)
        if watch is not None:
            watch(simulator)
        values = {"return": step.earned.own.mean(-1), "group_return": step.earned.group, "length": alive.float()}
        values |= {name: step.measures[name] for name in task.counted} | {"completion": step.done.float()}
        for name, value in values.items():
            sums[name] += value * alive
        for name in task.final:
            sums[name] = torch.where(alive, step.measures[name], sums[name])
        alive &= ~step.done
        observations = step.observations
        if not bool(alive.any()):
            break
    return Score({name: total.view(seeds, count).mean(1).cpu() for name, total in sums.items()}, count)
