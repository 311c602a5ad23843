"""VMAS as batched physics: states are set from outside, nothing random happens within."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from atgrpo.extras import optional
from atgrpo.marl.tasks import Earned, Measures, Task
from atgrpo.marl.types import Spec

MOTION = ("pos", "vel", "rot", "ang_vel")
DRAWN_AT_ONCE = 1024
MOST_DRAWS = 200


def make_simulator(task: Task, envs: int, *, continuous: bool, device: str | torch.device, seed: int = 0) -> Any:
    """VMAS's own environment.

    Raises:
        ValueError: VMAS is not installed.
    """
    with contextlib.redirect_stderr(io.StringIO()):  # gym, which VMAS imports, says there that it is old
        vmas = optional("vmas")
    made = vmas.make_env(
        task.scenario,
        num_envs=envs,
        device=device,
        continuous_actions=continuous,
        seed=seed,
        clamp_actions=True,
        **task.settings(),
    )
    task.prepare(made.scenario)
    return made


def _entities(made: Any) -> list[Any]:
    return [*made.world.agents, *made.world.landmarks]


@dataclass(frozen=True, slots=True)
class Advance:
    """What a step led to."""

    observations: Float[Tensor, "B N D"]
    earned: Earned
    measures: Measures
    done: Bool[Tensor, " B"]


class Simulator:
    """``envs`` copies of a task that move together.

    Args:
        task: What is simulated.
        envs: How many copies.
        continuous: Actions are forces, otherwise one of the task's discrete choices.
        device: Where.
    """

    def __init__(self, task: Task, envs: int, *, continuous: bool, device: str | torch.device = "cpu") -> None:
        self.task = task
        self.envs = envs
        self.continuous = continuous
        self._vmas = make_simulator(task, envs, continuous=continuous, device=device)
        self._entities = _entities(self._vmas)
        self._before = task.measure(self._vmas.scenario)

    @property
    def spec(self) -> Spec:
        """Sizes of what agents see and do; the same for all."""
        agent = self._vmas.agents[0]
        size = self._vmas.get_agent_action_size(agent)
        action = size if self.continuous else int(self._vmas.get_agent_action_space(agent).n)
        return Spec(len(self._vmas.agents), self.observe().shape[-1], action)

    @property
    def entities(self) -> list[Any]:
        """Robots, then the scenario's things, in the order in which they are placed."""
        return self._entities

    @property
    def agents(self) -> list[Any]:
        """The robots among them."""
        return list(self._vmas.agents)

    @property
    def measures(self) -> Measures:
        """Of the state as it is."""
        return self._before

    def observe(self) -> Float[Tensor, "B N D"]:
        """What the agents see now."""
        scenario = self._vmas.scenario
        return torch.stack([scenario.observation(agent).float() for agent in self._vmas.agents], 1)

    def advance(self, actions: Tensor) -> Advance:
        """One step by ``actions`` [B, N, A], or [B, N] of discrete choices."""
        rows = actions if self.continuous else actions.unsqueeze(-1)
        # VMAS is asked for rewards only here: its reward functions remember the state that they were last asked in.
        seen, simulated, done, _ = self._vmas.step([rows[:, i] for i in range(rows.shape[1])])
        after = self.task.measure(self._vmas.scenario)
        earned = self.task.earned(self._before, after, torch.stack(simulated, -1), done)
        self._before = after
        for name, got, expected in (
            ("own", earned.own.shape, (self.envs, len(self.agents))),
            ("group", earned.group.shape, (self.envs,)),
        ):
            if tuple(got) != expected:
                task = type(self.task).__name__
                raise ValueError(f"{task}.earned: got {name} rewards of shape {tuple(got)}, expected {expected}")
        return Advance(torch.stack(seen, 1).float(), earned, after, done)

    def place(self, where: Bool[Tensor, " B"], positions: Float[Tensor, "B entities 2"]) -> None:
        """Puts everything to rest at ``positions``, in the copies ``where``; one by one VMAS takes 1 ms for each."""
        rows = where.unsqueeze(-1)
        for i, entity in enumerate(self._entities):
            state = entity.state
            state.pos = torch.where(rows, positions[:, i], state.pos)
            for name in MOTION[1:]:
                setattr(state, name, torch.where(rows, 0.0, getattr(state, name)))
        self._changed(where)

    def _changed(self, where: Bool[Tensor, " B"]) -> None:
        self.task.sync(self._vmas.scenario, where)
        fresh = self.task.measure(self._vmas.scenario)
        self._before = {
            name: torch.where(where.view(-1, *[1] * (value.dim() - 1)), value, self._before[name])
            for name, value in fresh.items()
        }

    def positions(self) -> Float[Tensor, "B entities 2"]:
        """Where everything is."""
        return torch.stack([entity.state.pos for entity in self._entities], 1)

    def rotations(self) -> Float[Tensor, "B entities"]:
        """How everything is turned."""
        return torch.stack([entity.state.rot.squeeze(-1) for entity in self._entities], 1)

    def state_dict(self) -> dict[str, Tensor]:
        """How everything moves."""
        return {name: torch.stack([getattr(e.state, name) for e in self._entities], 1) for name in MOTION}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Goes on from there."""
        for name, values in state.items():
            for entity, value in zip(self._entities, values.unbind(1), strict=True):
                setattr(entity.state, name, value.clone())
        self._changed(torch.ones(self.envs, dtype=torch.bool, device=values.device))


@dataclass(frozen=True, slots=True)
class Starts:
    """States that episodes start from, and what is seen there."""

    positions: Float[Tensor, "C entities 2"]
    observations: Float[Tensor, "C N D"]

    @classmethod
    def draw(cls, task: Task, count: int, seed: int) -> Starts:
        """``count`` states as the scenario itself draws them, of those that fit; always the same for a ``seed``.

        All are drawn before anything else is simulated: VMAS has one random state for all its environments.
        """
        drawn = make_simulator(task, DRAWN_AT_ONCE, continuous=True, device="cpu", seed=seed)
        found: list[Starts] = []
        entities = _entities(drawn)
        for _ in range(MOST_DRAWS):
            fits = task.fits(task.measure(drawn.scenario))
            seen = torch.stack([drawn.scenario.observation(agent).float() for agent in drawn.agents], 1)
            positions = torch.stack([entity.state.pos for entity in entities], 1)
            found.append(cls(positions[fits], seen[fits]))
            if sum(len(part.positions) for part in found) >= count:
                return _joined(found, count)
            drawn.reset()
        raise ValueError(f"task: got too few states to start from, expected {count}: widen the range of starts")

    def to(self, device: str | torch.device) -> Starts:
        """On another device."""
        return Starts(self.positions.to(device), self.observations.to(device))

    def take(self, index: Int[Tensor, " B"]) -> Starts:
        """Those at ``index``."""
        return Starts(self.positions[index], self.observations[index])


def _joined(parts: Sequence[Starts], count: int) -> Starts:
    positions, observations = (torch.cat([getattr(p, n) for p in parts])[:count] for n in ("positions", "observations"))
    return Starts(positions, observations)
