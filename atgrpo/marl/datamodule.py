"""The LightningDataModule whose data is what the teams play: one epoch is one iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import lightning as L
import torch
from torch import Tensor

from atgrpo.marl.callbacks.algorithm import Algorithm
from atgrpo.marl.collector import collect
from atgrpo.marl.environments import Environments
from atgrpo.marl.module import TeamModule
from atgrpo.marl.seeding import ORDER, STEPS, generator
from atgrpo.marl.types import Episodes, Experience, Samples
from atgrpo.ranks import Ranks


@dataclass
class Iteration:
    """What the latest iteration collected, for those who report on it."""

    number: int = -1
    frames: int = 0
    """Environment steps of one seed up to its end."""
    episodes: Episodes | None = None
    experience: Experience | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Shuffled:
    """An iteration's minibatches, ``epochs`` times over, in an order that each seed draws for itself."""

    samples: Samples
    order: list[Tensor]
    done: int = 0
    """Minibatches that have been learned from."""

    def __len__(self) -> int:
        """Number of optimiser steps."""
        return len(self.order)

    def __iter__(self) -> Iterator[Samples]:
        """From the start."""
        for index in self.order:
            yield self.samples.take(index)


class TeamDataModule(L.LightningDataModule):
    """Plays with the current actors and hands out minibatches.

    Args:
        start: Builds the environments on a device; called once, when they are first needed.
        steps: Of every environment in one iteration.
    """

    def __init__(self, *, start: Callable[[torch.device], Environments], steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.latest = Iteration()
        self.heldout_success: dict[int, float] = {}
        """Finished iterations -> held-out completion, where it was measured in this process."""
        self._start = start
        self._environments: Environments | None = None
        self._restored: dict[str, Any] | None = None
        self._next = 0
        self._loader: Shuffled | None = None
        self._collecting = False

    @cached_property
    def ranks(self) -> Ranks:
        """The processes of the run: this one."""
        return Ranks.current()

    @property
    def _module(self) -> TeamModule:
        return cast(TeamModule, cast(Any, self.trainer).lightning_module)

    @property
    def environments(self) -> Environments:
        """Where the teams play."""
        if self._environments is None:
            self._environments = self._start(self._module.device)
            if self._restored is not None:
                self._environments.load_state_dict(self._restored)
                self._restored = None
        return self._environments

    @property
    def finished(self) -> int:
        """Iterations that have been trained to their end."""
        return self._next + (self._loader is not None and self._learned)

    @property
    def _learned(self) -> bool:
        return self._loader is not None and self._loader.done >= len(self._loader)

    @property
    def between_iterations(self) -> bool:
        """No minibatch of an unfinished iteration has been learned from, and no environment has moved since."""
        return not self._collecting and (self._loader is None or self._learned)

    def train_dataloader(self) -> Shuffled:
        """The minibatches of the iteration that comes next; collected on the first call, returned on further ones."""
        if self._loader is None or self._learned:
            self._next, self._loader = self.finished, None
            self._loader = self._collect(self._next)
            self._collecting = False
        return self._loader

    def _collect(self, number: int) -> Shuffled:
        for callback in cast(Any, self.trainer).callbacks:
            if hasattr(callback, "on_rollout_start"):  # who stops a run gracefully waits for this
                callback.on_rollout_start(self.trainer, self.environments.envs)
        module, environments = self._module, self.environments
        self._collecting = True  # from the middle of a rollout nobody can go on
        start = time.perf_counter()
        draws = [generator(seed, STEPS, number) for seed in module.seeds]
        experience = collect(environments, module.actor, module.judge, self.steps, draws)
        played = time.perf_counter()
        algorithm = self._algorithm()
        scored = algorithm.on_rollout_end(self.trainer, module, experience)
        samples = module.prepared(scored)
        order = _order(module, number, self.steps * environments.envs)
        seconds = {"rollout": played - start, "prepare": time.perf_counter() - played}
        frames = (number + 1) * self.steps * environments.envs
        self.latest = Iteration(number, frames, environments.pop_episodes(), scored, seconds)
        return Shuffled(samples, order)

    def _algorithm(self) -> Algorithm:
        found = [c for c in cast(Any, self.trainer).callbacks if isinstance(c, Algorithm)]
        if len(found) != 1:
            raise ValueError(f"the trainer got {len(found)} algorithms, expected exactly one")
        return found[0]

    def learned(self, minibatches: int) -> None:
        """That many minibatches of the iteration have been learned from."""
        if self._loader is not None:
            self._loader.done = minibatches

    def state_dict(self) -> dict[str, Any]:
        """Where to go on. Valid between iterations, which is when checkpoints are written."""
        return {"finished": self.finished, "environments": self.environments.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on after the iterations that ``state_dict`` calls finished."""
        self._next, self._loader, self._collecting = state_dict["finished"], None, False
        self._restored, self._environments = state_dict["environments"], None


def _order(module: TeamModule, number: int, samples: int) -> list[Tensor]:
    """Minibatch -> its samples [S, M]; every sample once in each epoch, the last minibatch may be smaller."""
    size = module.ppo.minibatch
    draws = [generator(seed, ORDER, number) for seed in module.seeds]
    out: list[Tensor] = []
    for _ in range(module.ppo.epochs):
        mixed = torch.stack([torch.randperm(samples, generator=draw) for draw in draws]).to(module.device)
        out += mixed.split(size, 1)
    return out
