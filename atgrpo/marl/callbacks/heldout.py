"""Scores on states that no team was trained on."""

from __future__ import annotations

import json
from typing import Any

import lightning as L
import torch

from atgrpo.marl.callbacks.metrics import by_tag
from atgrpo.marl.evaluation import Score, evaluate
from atgrpo.marl.simulator import Simulator, Starts

HELD_OUT = 2
"""Seed of the states; 1 is that of those to train on."""


class HeldOutTeams(L.Callback):
    """Plays every seed's team without chance, before, during and after training.

    Args:
        episodes: For each seed, always from the same states.
        every: Iterations between two scores; 0 for only before and after.
    """

    def __init__(self, episodes: int = 128, every: int = 10) -> None:
        if episodes < 1 or every < 0:
            raise ValueError(f"heldout got episodes={episodes}, every={every}, expected 1, 0 or more")
        self.episodes = episodes
        self.every = every
        self.scores: dict[int, dict[str, list[float]]] = {}
        """Frames of a seed -> metric -> each seed's value; kept over a resume."""
        self._simulator: Simulator | None = None

    def state_dict(self) -> dict[str, Any]:
        """All scores."""
        return {"scores": json.dumps(self.scores)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self.scores = {int(frames): score for frames, score in json.loads(state_dict["scores"]).items()}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Before the first update of a run that starts."""
        if trainer.datamodule.finished == 0:
            self._score(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """When it is due, and after the last iteration."""
        number = trainer.datamodule.finished
        if number == trainer.max_epochs or (self.every and number % self.every == 0):
            self._score(trainer, pl_module)

    def score(self, task: Any, module: Any, seed: int = HELD_OUT, **options: Any) -> Score:
        """One score of a module's teams on the states of ``seed``; ``options`` as ``evaluate`` takes them."""
        starts = Starts.draw(task, self.episodes, seed).to(module.device)
        if self._simulator is None:
            copies = self.episodes * len(module.seeds)
            self._simulator = Simulator(task, copies, continuous=module.actor.continuous, device=module.device)
        return evaluate(self._simulator, module.actor, starts, len(module.seeds), **options)

    def _score(self, trainer: Any, pl_module: Any) -> None:
        data = trainer.datamodule
        number, found = data.finished, self.score(data.environments.simulator.task, pl_module)
        frames = number * data.steps * data.environments.envs
        self.scores[frames] = {name: values.tolist() for name, values in found.metrics.items()}
        data.heldout_success[number] = float(found.metrics["completion"].mean())
        print(f"held out after {frames:,} frames: {found}")
        if trainer.logger is not None:
            of_seeds = {f"heldout/{name}": torch.as_tensor(values) for name, values in found.metrics.items()}
            trainer.logger.log_metrics(by_tag(of_seeds, pl_module.seeds), step=frames)
