"""Ctrl-C and SIGTERM end a run where it can go on."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from atgrpo.training.callbacks.hooks import RolloutCallback
from atgrpo.training.say import say


class GracefulStop(RolloutCallback):
    """The first signal lets the iteration finish and be saved; a second Ctrl-C stops at once.

    Lightning's own SIGTERM handler communicates inside the handler, which hangs when ranks are at different points. It
    is installed after ``on_fit_start`` but before data are asked for, so this one is put in its place when the first
    trees are about to be grown.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def on_rollout_start(self, trainer: Any, trees: int) -> None:
        """Installs the handlers, once."""
        if not self._before:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the run on all ranks, before the checkpoint callback looks whether to save."""
        if any(trainer.datamodule.ranks.gather(self.asked)):
            trainer.should_stop = True

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Puts back what was there."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True
        say("stopping after this iteration, which is then saved; press Ctrl-C again to stop at once")
