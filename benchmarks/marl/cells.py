"""What is compared, and how a cell is trained."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L

from atgrpo.cli.build import make
from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.marl import build_teams
from atgrpo.cli.runs import RunFolder, new_run
from benchmarks.marl.results import Result

TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "navigation": ("navigation", ()),
    "box_pushing": ("box_pushing", ()),
    "box_pushing_alone": ("box_pushing", ("task.agents=1",)),
}
"""Task -> recipe and settings."""
RELATIVE = "algorithm=relative"
ALGORITHMS: dict[str, tuple[str, ...]] = {
    "dec_ppo": ("algorithm=dec_ppo",),
    "mappo": ("algorithm=mappo",),
    "relative": (RELATIVE,),
    "agreement": ("algorithm=agreement",),
    "relative_clip": (RELATIVE, "algorithm.form=clip"),
    "relative_sigmoid": (RELATIVE, "algorithm.form=sigmoid"),
    "relative_linear": (RELATIVE, "algorithm.form=linear"),
    "relative_linear_raw": (RELATIVE, "algorithm.form=linear", "algorithm.limit=null", "algorithm.eps=1e-8"),
    "relative_guard_one": (RELATIVE, "algorithm.guard=one"),
}
"""Algorithm -> settings. The seed document's own f is ``relative_linear_raw``; w = 1 is ``mappo``."""
COMPARED = ("dec_ppo", "mappo", "relative")


def run_cell(task: str, algorithm: str, seeds: int, frames: int, root: Path, more: Sequence[str] = ()) -> list[Result]:
    """Trains all seeds of a cell in one process."""
    recipe, settings = TASKS[task]
    path = find_recipe(recipe)
    fixed = [f"seeds={seeds}", f"run.root={root}", "heldout.every=10", "checkpoint.every=1000000"]
    config = load(path, [*settings, *ALGORITHMS[algorithm], *fixed, *more])
    per_iteration = config.envs * config.steps
    config.iterations = -(-frames // per_iteration)
    parts = build_teams(config)
    trainer: Any = parts.trainer(RunFolder(partial(new_run, config, path), make(config.logger)))
    speed = _Speed()
    trainer.callbacks.insert(0, speed)
    trainer.fit(parts.module(), datamodule=parts.datamodule())
    assert parts.heldout is not None
    if trainer.datamodule.finished < config.iterations:
        raise ValueError(f"{task} {algorithm} was stopped after {trainer.datamodule.finished} iterations: nothing kept")
    rate = config.iterations * per_iteration * seeds / speed.seconds
    return [
        Result("atgrpo", task, algorithm, seed, done, {name: v[i] for name, v in scores.items()}, rate)
        for done, scores in parts.heldout.scores.items()
        for i, seed in enumerate(parts.seeds)
    ]


class _Speed(L.Callback):
    """Seconds of collecting and learning, without those of scores and checkpoints."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Collecting is over."""
        self._start = time.perf_counter()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Learning is over; stands before all other callbacks."""
        self.seconds += time.perf_counter() - self._start + sum(trainer.datamodule.latest.seconds.values())
