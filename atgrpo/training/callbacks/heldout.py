"""Held-out success before, during and after training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import lightning as L

from atgrpo.rollout.seeds import stable_seed
from atgrpo.training.callbacks.metrics import finite
from atgrpo.training.evaluation import Mode, Score, evaluate
from atgrpo.training.say import bar, say


class HeldOut(L.Callback):
    """Scores the team on the held-out split and logs against the number of finished iterations.

    Args:
        problems: Held-out samples, the first of the split.
        every: Iterations between scores; 0 for only before and after.
        modes: ``greedy``, ``sampled`` or both; the first one decides which checkpoint is best.
    """

    def __init__(self, problems: int = 128, every: int = 5, modes: Sequence[Mode] = ("greedy",)) -> None:
        if problems < 1 or every < 0 or not modes:
            raise ValueError(
                f"heldout got problems={problems}, every={every}, modes={list(modes)}, expected 1, 0 or more, one mode"
            )
        self.problems = problems
        self.every = every
        self.modes = tuple(modes)
        self.first: dict[str, str] = {}
        """Mode -> the line printed before training; kept over a resume."""

    def state_dict(self) -> dict[str, Any]:
        """The scores before training."""
        return {"first": self.first}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self.first = dict(state_dict["first"])

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the first update of a run that starts."""
        if trainer.datamodule.finished == 0:
            self.first = {score.mode: str(score) for score in self._score(trainer)}

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """When it is due, and after the last iteration."""
        number, scores = trainer.datamodule.finished, []
        if number == trainer.max_epochs:
            scores = self._score(trainer, quiet=True)
            for score in scores:
                say(f"before training: {self.first.get(score.mode, 'not measured')}")
                say(f"after training:  {score}")
        elif self.every and number % self.every == 0:
            scores = self._score(trainer)
        for score in scores:
            pl_module.log_dict(_values(score), logger=False)  # for other callbacks

    def _score(self, trainer: Any, quiet: bool = False) -> list[Score]:
        data = trainer.datamodule
        number, start = data.finished, time.perf_counter()
        samples = data.data.split("heldout")[: self.problems]
        scores = []
        with data.playing() as team:
            for mode in self.modes:
                seed = stable_seed(data.seed, "heldout", mode)
                title = f"held-out {mode}"
                with bar(total=len(samples), desc=title, unit="problem", leave=False) as progress:
                    score, _ = evaluate(team, samples, data.sampler, mode, seed=seed, on_done=progress.update)
                scores.append(score)
            team.engine.stats()  # an iteration's counters start after this
        for score in scores:
            if not quiet:
                say(f"after {number} iterations: {score}")
            if trainer.logger is not None:
                trainer.logger.log_metrics(_values(score), step=number)
        if trainer.logger is not None:
            trainer.logger.log_metrics({"seconds/heldout": time.perf_counter() - start}, step=number)
        data.heldout_success[number] = scores[0].success
        return scores


def _values(score: Score) -> dict[str, float]:
    values = {k: v for k, v in asdict(score).items() if k in ("success", "low", "high")}
    values |= {f"success_turn_{t + 1}": s for t, s in enumerate(score.success_by_turn)}
    return {f"heldout/{score.mode}/{k}": v for k, v in finite(values).items()}
