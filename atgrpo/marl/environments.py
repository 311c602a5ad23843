"""Environments that start again by themselves, for several seeds at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atgrpo.marl.seeding import STARTS, generator
from atgrpo.marl.simulator import Simulator, Starts
from atgrpo.marl.types import Episodes, Spec

SUMMED = ("return", "group_return", "length")


@dataclass(frozen=True, slots=True)
class Step:
    """What every environment answered, before any of them started again."""

    rewards: Float[Tensor, "S E N"]
    group_rewards: Float[Tensor, "S E"]
    observations: Float[Tensor, "S E N D"]
    terminated: Bool[Tensor, "S E"]
    ended: Bool[Tensor, "S E"]


class Environments:
    """``len(seeds) * envs`` copies of a task; a seed's copies and draws do not depend on which other seeds there are.

    The first episodes are cut short at different points, so that not all of them end in the same step, and are not
    counted among the whole ones.

    Args:
        simulator: Of all copies, those of a seed side by side.
        starts: What episodes start from.
        seeds: Of the teams.
    """

    def __init__(self, simulator: Simulator, starts: Starts, seeds: Sequence[int]) -> None:
        self.simulator = simulator
        self.seeds = tuple(seeds)
        self.envs = simulator.envs // len(seeds)
        self.spec: Spec = simulator.spec
        self._limit = simulator.task.time_limit
        self._device = simulator.observe().device
        self._starts = starts.to(self._device)
        self.observations = simulator.observe().view(len(seeds), self.envs, *simulator.observe().shape[1:])
        everywhere = torch.ones(len(seeds), self.envs, dtype=torch.bool, device=self._device)
        draws = [generator(seed, STARTS) for seed in seeds]
        self._reset(everywhere, draws)
        clocks = [torch.randint(self._limit, (self.envs,), generator=draw) for draw in draws]
        self._clock = torch.stack(clocks).to(self._device)
        self._whole = self._clock == 0
        task = simulator.task
        names = (*SUMMED, *task.counted)
        self._running = {name: torch.zeros(len(seeds), self.envs, device=self._device) for name in names}
        self._clear()

    def step(self, actions: Tensor, draws: Sequence[torch.Generator]) -> Step:
        """One step everywhere; where an episode ends the next one starts, from a state that is drawn by its seed."""
        result = self.simulator.advance(actions.flatten(0, 1))
        self._clock += 1
        shape = (len(self.seeds), self.envs)
        terminated = result.done.view(shape)
        ended = terminated | (self._clock >= self._limit)
        step = Step(
            rewards=result.earned.own.view(*shape, -1),
            group_rewards=result.earned.group.view(shape),
            observations=result.observations.view(*shape, *result.observations.shape[1:]),
            terminated=terminated,
            ended=ended,
        )
        self._count(step, {name: value.view(*shape, *value.shape[1:]) for name, value in result.measures.items()})
        self.observations = step.observations
        if bool(ended.any()):
            self._reset(ended, draws)
            self._clock = torch.where(ended, 0, self._clock)
        return step

    def _reset(self, where: Bool[Tensor, "S E"], draws: Sequence[torch.Generator]) -> None:
        index = torch.zeros(where.shape, dtype=torch.long)
        for seed, any_ended in enumerate(where.any(1).tolist()):
            if any_ended:
                index[seed] = torch.randint(len(self._starts.positions), (self.envs,), generator=draws[seed])
        fresh = self._starts.take(index.flatten().to(self._device))
        self.simulator.place(where.flatten(), fresh.positions)
        seen = fresh.observations.view_as(self.observations)
        self.observations = torch.where(where[..., None, None], seen, self.observations)

    def _count(self, step: Step, measures: dict[str, Tensor]) -> None:
        task = self.simulator.task
        of_step = {"return": step.rewards.mean(-1), "group_return": step.group_rewards, "length": torch.ones(())}
        for name in self._running:
            self._running[name] += of_step[name] if name in of_step else measures[name]
        counted = step.ended & self._whole
        self._episodes += counted.sum(1)
        at_end = {"completion": step.terminated.float(), **{name: measures[name] for name in task.final}}
        for name, values in (self._running | at_end).items():
            self._sums[name] = self._sums.get(name, torch.zeros_like(self._episodes)) + (values * counted).sum(1)
        for values in self._running.values():
            values.masked_fill_(step.ended, 0.0)
        self._whole |= step.ended

    def _clear(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._episodes = torch.zeros(len(self.seeds), device=self._device)

    def pop_episodes(self) -> Episodes:
        """Whole episodes that ended since the last call."""
        found = Episodes(self._sums, self._episodes)
        self._clear()
        return found

    def state_dict(self) -> dict[str, Any]:
        """Where every episode stands."""
        return {
            "motion": self.simulator.state_dict(),
            "observations": self.observations.clone(),
            "clock": self._clock.clone(),
            "whole": self._whole.clone(),
            "running": {name: values.clone() for name, values in self._running.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there.

        Raises:
            ValueError: it is that of another number of environments.
        """
        if (got := tuple(state["clock"].shape)) != tuple(self._clock.shape):
            raise ValueError(f"the checkpoint has {got} seeds and environments, expected {tuple(self._clock.shape)}")
        self.simulator.load_state_dict({name: values.to(self._device) for name, values in state["motion"].items()})
        self.observations, self._clock, self._whole = (
            state[name].to(self._device) for name in ("observations", "clock", "whole")
        )
        self._running = {name: values.to(self._device) for name, values in state["running"].items()}
