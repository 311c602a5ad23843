"""How the learning rate goes over a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning-rate schedule; its length always follows from the run's, it is never given.

    Args:
        name: Shape after the warm-up; ``linear`` and ``cosine`` fall to 0 at the end.
        warmup: Share of the run's optimiser steps in which the rate rises from 0.
    """

    name: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup: got {self.warmup}, expected a share of the run from 0 to 1")

    def build(self, optimizer: Optimizer, steps: int) -> LambdaLR:
        """The schedule over ``steps`` optimiser steps."""
        from transformers import get_scheduler

        built: LambdaLR = get_scheduler(self.name, optimizer, round(self.warmup * steps), steps)
        return built


def set_rates(schedule: LambdaLR) -> None:
    """Gives the next step the rate that ``schedule`` has for it, where the optimiser's is that of another length."""
    groups = schedule.optimizer.param_groups
    for group, base, share in zip(groups, schedule.base_lrs, schedule.lr_lambdas, strict=True):
        group["lr"] = base * share(schedule.last_epoch)
