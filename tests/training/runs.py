"""Runs of the debug recipe in this process, two policies unless said otherwise, and what can be seen from outside."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L

from atgrpo.cli.build import build, make
from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.runs import CHECKPOINTS, RunFolder
from atgrpo.training.callbacks.checkpoint import saved_iterations
from atgrpo.training.callbacks.hooks import RolloutCallback
from atgrpo.training.datamodule import RolloutDataModule
from atgrpo.training.module import MultiPolicyModule
from atgrpo.types import Action, StepResult
from tests.cli.letters import Letters

SETTINGS = [
    "env._target_=tests.cli.letters.Letters",
    "engine=transformers",
    "agents.tool=a",
    "agents.reasoner=b",
    "sampler.turns=1",
    "sampler.max_tokens=4",
    "heldout=null",
    "optimizer.weight_decay=0",
]


class Flat(Letters):
    """Whatever is written earns the same."""

    def step(self, agent: str, action: Action) -> StepResult:
        return StepResult(1.0, 0.0, done=False)


class Over(Letters):
    """There is nothing left to do on any sample."""

    @property
    def done(self) -> bool:
        return True


class Unjudged(Letters):
    """The judge crashes on everything."""

    def step(self, agent: str, action: Action) -> StepResult:
        return StepResult(None, None, done=False)

    @property
    def success(self) -> float:
        return math.nan


@dataclass
class Watcher(RolloutCallback):
    """Keeps what an iteration was; asks for an end after ``stop`` of them."""

    stop: int = 0
    trees: list[int] = field(default_factory=list)
    """Grown at once, for each time that rollouts were started."""
    samples: list[str] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)
    """Learning rate of every optimiser step of a policy."""
    started_with: dict[str, Any] = field(default_factory=dict)
    """Weights and optimiser states right before the first update."""

    def on_rollout_start(self, trainer: Any, trees: int) -> None:
        self.trees.append(trees)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.started_with = snapshot(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.samples += [rollout.sample.id for rollout in trainer.datamodule.latest.rollouts]
        for policy, stats in pl_module.stats.items():
            self.rates.setdefault(policy, []).extend(rate for _, rate in stats.steps)
        trainer.should_stop |= trainer.datamodule.finished == self.stop


@dataclass(frozen=True)
class Fitted:
    trainer: L.Trainer
    module: MultiPolicyModule
    data: RolloutDataModule
    seen: Watcher


def snapshot(trainer: Any) -> dict[str, Any]:
    """Policy -> (weights, optimiser state), copied."""
    module = trainer.lightning_module
    pairs = zip(module.trainable, trainer.optimizers, strict=True)
    return {
        name: copy.deepcopy((dict(module.policies[name].state_dict()), optimizer.state_dict()["state"]))
        for name, optimizer in pairs
    }


def fit(run: Path, *overrides: str, stop: int = 0, resume: bool = False) -> Fitted:
    """Trains; with ``resume`` from the run's newest checkpoint."""
    parts = build(load(find_recipe("debug"), [*SETTINGS, *overrides]))
    trainer = parts.trainer(RunFolder(run, make(parts.config.logger)))
    module, data, seen = parts.module(), parts.datamodule(), Watcher(stop)
    trainer.callbacks.insert(0, seen)  # type: ignore[attr-defined]
    saved = saved_iterations(run / CHECKPOINTS)[-1].state if resume else None
    trainer.fit(module, datamodule=data, ckpt_path=saved)
    return Fitted(trainer, module, data, seen)
