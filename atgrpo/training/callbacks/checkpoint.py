"""Checkpoints between iterations, each a folder that appears under its name only when it is whole."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Checkpoint

from atgrpo.engines.base import AgreedError

STATE = "state.ckpt"
META = "meta.json"


@dataclass(frozen=True, slots=True)
class SavedIteration:
    """A checkpoint on disk."""

    folder: Path
    iteration: int
    """Finished iterations."""
    score: float | None
    """Held-out success, where it was measured after this iteration."""

    @property
    def state(self) -> Path:
        """What Lightning reads: a file of one process, a folder of several."""
        return self.folder / STATE


def saved_iterations(folder: Path) -> list[SavedIteration]:
    """The whole checkpoints in ``folder``, oldest first.

    By the time they were written, not by number: a run that was set back goes on from what it wrote last.
    """
    found = []
    for meta in folder.glob(f"iteration_*/{META}"):
        data = json.loads(meta.read_text())
        found.append((data["time"], SavedIteration(meta.parent, data["iteration"], data["score"])))
    return [saved for _, saved in sorted(found, key=lambda item: item[0])]


class IterationCheckpoint(Checkpoint):
    """Writes a checkpoint after every ``every``-th iteration, the last one and one that is told to stop.

    Args:
        every: Iterations between checkpoints; a killed run loses at most this many.
        keep_last: Newest checkpoints that stay.
        keep_best: Checkpoints with the highest held-out success that stay besides.
    """

    def __init__(self, *, every: int = 1, keep_last: int = 1, keep_best: int = 0) -> None:
        if min(every, keep_last) < 1 or keep_best < 0:
            raise ValueError(
                f"checkpoint got every={every}, keep_last={keep_last}, keep_best={keep_best}, expected 1, 1, 0 or more"
            )
        self.folder = Path()
        """Where they go; set before training starts."""
        self.every = every
        self.keep_last = keep_last
        self.keep_best = keep_best
        self.pinned: int | None = None
        """An iteration whose checkpoint is written and stays whatever else; set by who wants to go back to it."""
        self.saved = 0
        """The iteration of the newest checkpoint, or that from which the run started."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """What a run starts from is not lost."""
        self.saved = trainer.datamodule.finished

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Runs after every other callback, as Lightning puts checkpoint callbacks last."""
        number = trainer.datamodule.finished
        if number % self.every and number != self.pinned and not trainer.should_stop and number < trainer.max_epochs:
            return
        self._save(trainer, number)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Saves what is finished and not yet saved, where all ranks stand between two iterations."""
        data = trainer.datamodule
        if data is None:  # the processes of the run could not be started
            return
        together = data.ranks.size == 1 or isinstance(exception, AgreedError)
        if data.between_iterations and together and data.finished > self.saved:
            self._save(trainer, data.finished)

    def place(self, number: int) -> Path:
        """The folder of the checkpoint after ``number`` iterations."""
        return self.folder / f"iteration_{number:05d}"

    def _save(self, trainer: Any, number: int) -> None:
        start = time.perf_counter()
        first = trainer.is_global_zero
        aside, target = self.folder / f".writing_{number:05d}", self.place(number)
        if first:
            for stale in self.folder.glob(".writing_*"):
                shutil.rmtree(stale)
            aside.mkdir(parents=True)
        trainer.strategy.barrier()
        trainer.save_checkpoint(aside / STATE)
        trainer.strategy.barrier()  # every rank has written its part
        if first:
            score = trainer.datamodule.heldout_success.get(number)
            (aside / META).write_text(json.dumps({"iteration": number, "score": score, "time": time.time()}))
            if target.exists():  # a run that was set back comes by the same number again
                _remove(target)
            os.replace(aside, target)
            self._prune()
        self.saved = number
        if trainer.logger is not None:
            trainer.logger.log_metrics({"seconds/checkpoint": time.perf_counter() - start}, step=number)

    def _prune(self) -> None:
        saved = saved_iterations(self.folder)
        scored = sorted((s for s in saved if s.score is not None), key=lambda s: (s.score, s.iteration), reverse=True)
        kept = {s.folder for s in saved[-self.keep_last :]} | {s.folder for s in scored[: self.keep_best]}
        for old in saved:
            if old.folder not in kept and old.iteration != self.pinned:
                _remove(old.folder)


def checkpoint_of(trainer: Any) -> IterationCheckpoint:
    """Who writes the run's checkpoints.

    Raises:
        ValueError: nobody does.
    """
    found = [c for c in trainer.checkpoint_callbacks if isinstance(c, IterationCheckpoint)]
    if len(found) != 1:
        raise ValueError(f"trainer got {len(found)} IterationCheckpoint callbacks, expected exactly one")
    return found[0]


def _remove(folder: Path) -> None:
    """Out of sight first: a kill in the middle must not leave half a checkpoint under a whole one's name."""
    aside = folder.with_name(f".writing_{folder.name}")
    os.replace(folder, aside)
    shutil.rmtree(aside)
