"""Small teams of the classical side in this process, and what is left of their training."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.marl import TeamParts, build_teams
from atgrpo.cli.runs import CHECKPOINTS, RunFolder
from atgrpo.marl.datamodule import TeamDataModule
from atgrpo.marl.module import TeamModule
from atgrpo.training.callbacks.checkpoint import saved_iterations

SMALL = [
    "envs=8",
    "steps=10",
    "iterations=2",
    "task.agents=3",
    "task.time_limit=12",
    "ppo.minibatch=32",
    "ppo.epochs=2",
    "checkpoint.every=1",
    "heldout=null",
    "logger=null",
]


def parts(*overrides: str, recipe: str = "navigation") -> TeamParts:
    return build_teams(load(find_recipe(recipe), [*SMALL, *overrides]))


@dataclass(frozen=True)
class Fitted:
    module: TeamModule
    data: TeamDataModule

    def state(self) -> dict[str, torch.Tensor]:
        return copy.deepcopy(self.module.state_dict())


def fit(run: Path, *overrides: str, resume: bool = False, recipe: str = "navigation") -> Fitted:
    """Trains; with ``resume`` from the run's newest checkpoint."""
    built = parts(*overrides, recipe=recipe)
    run.mkdir(parents=True, exist_ok=True)
    trainer: Any = built.trainer(RunFolder(run, None))
    module, data = built.module(), built.datamodule()
    saved = saved_iterations(run / CHECKPOINTS)[-1].state if resume else None
    trainer.fit(module, datamodule=data, ckpt_path=saved)
    return Fitted(module, data)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """To the last bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
