"""A task whose success is written down beforehand, whatever is said: one number for each age of the weights."""

from __future__ import annotations

from typing import Any, ClassVar

from atgrpo.training.callbacks.hooks import RolloutCallback
from tests.cli.letters import Letters


class Scripted(Letters):
    """The roles still earn their digits, so that there is something to learn."""

    level: ClassVar[float] = 0.0

    @property
    def success(self) -> float:
        return Scripted.level


class Levels(RolloutCallback):
    """Entry n of ``levels`` is the success of weights that n iterations have made."""

    def __init__(self, levels: list[float]) -> None:
        self.levels = levels

    def on_rollout_start(self, trainer: Any, trees: int) -> None:
        Scripted.level = self.levels[trainer.datamodule.finished]

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """What is played from now on is held out, at the end of the iteration."""
        Scripted.level = self.levels[trainer.datamodule.finished + 1]


def scripted(levels: list[float]) -> list[str]:
    """Settings of a run that is played so."""
    here = "tests.training.callbacks.levels"
    return [f"env._target_={here}.Scripted", f"callbacks.levels={{_target_: {here}.Levels, levels: {levels}}}"]
