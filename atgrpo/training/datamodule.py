"""The LightningDataModule whose data is what the team plays: one epoch is one iteration of rollouts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import lightning as L
import torch

from atgrpo.data.base import TaskData
from atgrpo.ranks import Ranks
from atgrpo.rollout.collate import Batching, make_minibatches
from atgrpo.rollout.samplers import Sampler
from atgrpo.rollout.seeds import stable_seed
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.hooks import RolloutCallback
from atgrpo.training.filters import GroupFilter
from atgrpo.training.minibatches import Minibatches
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.prompts import PromptStream
from atgrpo.training.team import Team
from atgrpo.types import Rollout, Turn


@dataclass
class Iteration:
    """What the latest iteration collected, for those who report on it."""

    number: int = -1
    rollouts: list[Rollout] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Phase -> seconds: sync (weights, and the engine's start), rollout, prepare (packing, old log-probs)."""
    engine: Mapping[str, float] = field(default_factory=dict)


class RolloutDataModule(L.LightningDataModule):
    """Plays prompts with the current weights and hands out minibatches.

    Args:
        data: Where the samples come from.
        start_team: Starts the engine for a module's policies; called once, when the first rollouts are needed.
        sampler: Grows a rollout from a sample.
        prompts_per_iteration: Samples played in one iteration.
        batching: How turns become optimiser steps.
        group_filter: What happens to groups without variance.
        seed: Of the run. Every draw of iteration i depends on (seed, i) alone, so that a resumed run repeats it.
    """

    def __init__(
        self,
        *,
        data: TaskData,
        start_team: Callable[[Mapping[str, Any]], Team],
        sampler: Sampler,
        prompts_per_iteration: int,
        batching: Batching,
        group_filter: GroupFilter,
        seed: int,
    ) -> None:
        super().__init__()
        self.data = data
        self.sampler = sampler
        self.prompts_per_iteration = prompts_per_iteration
        self.batching = batching
        self.group_filter = group_filter
        self.seed = seed
        self.prompts = PromptStream(data.split("train"), seed)
        self.latest = Iteration()
        self.heldout_success: dict[int, float] = {}
        """Finished iterations -> held-out success, where it was measured in this process."""
        self._start_team = start_team
        self._team: Team | None = None
        self._next = 0
        self._position = 0
        self._loader: Minibatches | None = None

    @cached_property
    def ranks(self) -> Ranks:
        """The processes of the run; asked for once the trainer has started them."""
        return Ranks.current()

    @property
    def _module(self) -> MultiPolicyModule:
        assert self.trainer is not None
        module = self.trainer.lightning_module
        if not isinstance(module, MultiPolicyModule):
            raise ValueError(f"the trainer got a {type(module).__name__}, expected a MultiPolicyModule")
        return module

    @property
    def _precision(self) -> str:
        return str(cast(Any, self.trainer).precision)

    @property
    def _callbacks(self) -> list[L.Callback]:
        return list(cast(Any, self.trainer).callbacks)

    @contextmanager
    def playing(self) -> Iterator[Team]:
        """The team with the policies' current weights. Outside the engine sleeps, so that the trainer has the memory.

        Weights are pushed and caches emptied every time: what is sampled does not depend on what was played before.
        """
        if self._team is None:
            self._team = self._start_team(dict(self._module.policies.items()))
        # An engine in float32 has the numbers of a trainer in float32 only, which is also that of a LoRA's base.
        whole = all(p.dtype == torch.float32 for p in self._module.policies.parameters())
        self._module.exact_engine = self._team.engine.exact and whole and self._precision == "32-true"
        self._team.push()
        yield self._team
        self._team.engine.sleep()

    @property
    def finished(self) -> int:
        """Iterations that have been trained to their end."""
        return self._next + (self._loader is not None and self._loader.learned)

    @property
    def between_iterations(self) -> bool:
        """No minibatch of an unfinished iteration has been learned from."""
        return self._loader is None or self._loader.learned

    def train_dataloader(self) -> Minibatches:
        """The minibatches of the iteration that comes next; collected on the first call, returned on further ones."""
        if self.between_iterations or self._loader is None:
            self._next, self._loader = self.finished, None
            torch.manual_seed(stable_seed(self.seed, "torch", self._next))
            self._loader = self._collect(self._next)
        return self._loader

    def _collect(self, number: int) -> Minibatches:
        start = time.perf_counter()
        with self.playing() as team:
            synced = time.perf_counter()
            rollouts = self._play(team, number)
            played = time.perf_counter()
            stats = team.engine.stats()
        plan = make_minibatches(
            self.group_filter.apply(rollouts),
            self._module.trainable,
            self.batching,
            seed=stable_seed(self.seed, "minibatches", number),
            skip_zero=self._module.loss.policy_gradient_only,
            ranks=self.ranks,
        )
        plan = self._module.prepared(plan, several_steps=self.batching.steps_per_iteration > 1)
        seconds = {"sync": synced - start, "rollout": played - synced, "prepare": time.perf_counter() - played}
        self.latest = Iteration(number, rollouts, seconds, stats)
        return Minibatches(number, plan)

    def _play(self, team: Team, number: int) -> list[Rollout]:
        seed = stable_seed(self.seed, "iteration", number)
        rollouts: list[Rollout] = []
        missing, position = self.prompts_per_iteration, self._position
        while missing:
            samples = self.prompts.take(position, missing)
            position += missing
            self._tell("on_rollout_start", missing)
            trees = range(len(rollouts), len(rollouts) + missing)
            fresh = team.play(samples, self.sampler, seed=seed, trees=trees, on_done=lambda: self._tell("on_tree_end"))
            rollouts += self._scored(fresh, first_group=_groups(rollouts))
            missing = self.group_filter.missing(rollouts, self.prompts_per_iteration)
        self._position = position  # only now: an iteration that fails on the way is played again from its first prompt
        return rollouts

    def _tell(self, hook: str, *about: int) -> None:
        for callback in self._callbacks:
            if isinstance(callback, RolloutCallback):
                getattr(callback, hook)(self.trainer, *about)

    def _scored(self, rollouts: list[Rollout], *, first_group: int) -> list[Rollout]:
        estimators = [c for c in self._callbacks if isinstance(c, AdvantageCallback)]
        if len(estimators) != 1:
            raise ValueError(f"the trainer got {len(estimators)} advantage callbacks, expected exactly one")
        scored = estimators[0].on_rollout_end(self.trainer, self._module, rollouts)
        if not isinstance(scored, list) or len(scored) != len(rollouts):
            raise ValueError(f"{type(estimators[0]).__name__} returned {scored!r:.40}, expected a list of the rollouts")
        for turn in (turn for r in scored for turn in r.turns):
            if turn.rewards.credit is not None and not (turn.advantage is not None and math.isfinite(turn.advantage)):
                name = type(estimators[0]).__name__
                raise ValueError(f"{name} gave {turn.key} the advantage {turn.advantage}, expected a finite number")
        return [replace(r, turns=tuple(_shifted(t, first_group) for t in r.turns)) for r in scored]

    def state_dict(self) -> dict[str, Any]:
        """Where to go on. Valid between iterations, which is when checkpoints are written."""
        return {"finished": self.finished, "position": self._position, "seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on after the iterations that ``state_dict`` calls finished."""
        if state_dict["seed"] != self.seed:
            raise ValueError(f"seed: got {self.seed}, expected the checkpoint's {state_dict['seed']}")
        self._next, self._position, self._loader = state_dict["finished"], state_dict["position"], None

    def teardown(self, stage: str) -> None:
        """Stops the engine."""
        if self._team is not None:
            self._team.close()
            self._team = None


def _groups(rollouts: Sequence[Rollout]) -> int:
    return 1 + max((t.group for r in rollouts for t in r.turns if t.group is not None), default=-1)


def _shifted(turn: Turn, by: int) -> Turn:
    return turn if turn.group is None else replace(turn, group=turn.group + by)
