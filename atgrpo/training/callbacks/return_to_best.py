"""Back to the best checkpoint when the team's success falls off a cliff."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning as L

from atgrpo.rollout.samplers import mean
from atgrpo.training.callbacks.checkpoint import STATE, checkpoint_of
from atgrpo.training.callbacks.heldout import HeldOut
from atgrpo.training.callbacks.metrics import log
from atgrpo.training.say import say
from atgrpo.training.schedule import set_rates


class ReturnToBest(L.Callback):
    """Restores weights, optimisers and schedules of the best checkpoint; iterations and data go on.

    Success is what is held out where that is measured during training, else that of the iteration's rollouts, which
    tells of the weights before its update. The best is the highest success of weights that have a checkpoint, of equal
    ones the newest; its checkpoint stays. What a run starts from has none. The highest of many noisy measurements is
    too high: ``drop`` should be well above the noise of one.

    The iteration's own checkpoint is written with the restored weights. The engine gets them before it plays next.

    Args:
        drop: Success this far below the best is a fall.
        patience: Measurements in a row that must have fallen.
        limit: Most returns of a run; one that falls again is left alone, which is said once.
    """

    def __init__(self, *, drop: float = 0.2, patience: int = 2, limit: int = 3) -> None:
        if not 0 < drop <= 1 or min(patience, limit) < 1:
            raise ValueError(
                f"return_to_best got drop={drop}, patience={patience}, limit={limit}, "
                "expected more than 0 up to 1, 1 or more, 1 or more"
            )
        self.drop = drop
        self.patience = patience
        self.limit = limit
        self.measure = ""
        """``held-out`` or ``rollout``."""
        self.best: tuple[int, float] | None = None
        """(iteration, success)."""
        self.fallen = 0
        """Measurements in a row."""
        self.count = 0
        """Returns so far."""
        self.given_up = False

    def state_dict(self) -> dict[str, Any]:
        """The best, and what has been done."""
        return {name: getattr(self, name) for name in ("measure", "best", "fallen", "count", "given_up")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        for name, value in state_dict.items():
            setattr(self, name, value)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Keeps the best from before a resume, unless it is gone or success is measured in another way now."""
        held_out = any(isinstance(c, HeldOut) and c.every for c in trainer.callbacks)
        measure, checkpoint = "held-out" if held_out else "rollout", checkpoint_of(trainer)
        there = self.best is not None and checkpoint.place(self.best[0]).exists()
        if measure != self.measure or not trainer.datamodule.ranks.gather(there)[0]:
            self.measure, self.best, self.fallen = measure, None, 0
        checkpoint.pinned = self.best[0] if self.best else None

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Looks at what was measured. Every rank has seen all rollouts, so all of them decide alike."""
        iteration, success = self._measured(trainer.datamodule)
        if not math.isnan(success):
            self._judge(trainer, iteration, success)
        values = {"return_to_best/count": float(self.count)}
        log(trainer, pl_module, values, step=trainer.datamodule.finished)

    def _measured(self, data: Any) -> tuple[int, float]:
        """(iteration after which the weights were so, success); NaN if there is none."""
        if self.measure == "held-out":
            return data.finished, data.heldout_success.get(data.finished, math.nan)
        return data.finished - 1, mean(rollout.outcome for rollout in data.latest.rollouts)

    def _judge(self, trainer: Any, iteration: int, success: float) -> None:
        checkpoint, now = checkpoint_of(trainer), trainer.datamodule.finished
        to_come = iteration == now  # pinned, it is written when this iteration's callbacks are through
        exists = to_come or 0 < iteration == checkpoint.saved
        if exists and (self.best is None or success >= self.best[1]):
            self.best, self.fallen, checkpoint.pinned = (iteration, success), 0, iteration
        # Rounded: from .9 to .7 is a fall by .2, which floating point makes a little less.
        self.fallen = self.fallen + 1 if self.best and round(self.best[1] - success - self.drop, 9) >= 0 else 0
        if self.best is None or self.fallen < self.patience or self.given_up:
            return
        fall = f"{self.measure} success fell to {success:.1%} from {self.best[1]:.1%} after iteration {self.best[0]}"
        if self.count == self.limit:
            self.given_up = True
            say(f"{fall}; no more returns after {self.limit}, training goes on as it is: a smaller step may help")
            return
        restore(trainer, checkpoint.place(self.best[0]) / STATE)
        trainer.datamodule.heldout_success.pop(now, None)  # was that of the weights that are gone
        self.count, self.fallen = self.count + 1, 0
        say(f"{fall}; back to the weights, optimisers and schedules of then, return {self.count} of {self.limit}")


def restore(trainer: Any, state: Path) -> None:
    """Gives a run under way weights, optimiser states and schedules of a checkpoint; all ranks must call it."""
    strategy = trainer.strategy
    loaded = strategy.load_checkpoint(state, weights_only=True)
    # FSDP2 has loaded these two by now, and does nothing here.
    strategy.load_model_state_dict(loaded)
    strategy.load_optimizer_state_dict(loaded)
    for config, saved in zip(trainer.lr_scheduler_configs, loaded["lr_schedulers"], strict=True):
        config.scheduler.load_state_dict(saved)
        set_rates(config.scheduler)  # the run may have been made longer since
