"""How a team learns from an iteration."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOSettings:
    """Of all algorithms alike.

    Args:
        lr: Learning rate of actor and critics.
        epochs: How often each step is learned from.
        minibatch: Samples (steps of one environment, all agents) of an optimiser step.
        clip: Of the ratio.
        entropy: Weight of the entropy bonus.
        value: Weight of the critics' loss.
        value_clip: Of a value's way in one iteration, on the learned scale; None for none.
        huber: Where the value loss turns linear, on the learned scale; None for nowhere.
        normalise_values: Learn values at mean 0 and deviation 1.
        critic_hidden: Sizes of the critics' hidden layers.
        clip_norm: Largest gradient norm of each network of each seed.
    """

    lr: float = 1e-3
    epochs: int = 10
    minibatch: int = 800
    clip: float = 0.2
    entropy: float = 0.0
    value: float = 0.5
    value_clip: float | None = 0.2
    huber: float | None = 10.0
    normalise_values: bool = True
    critic_hidden: tuple[int, ...] = (64, 64)
    clip_norm: float = 10.0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("minibatch", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"ppo.{name}: got {getattr(self, name)}, expected {least} or more")
        for name in ("lr", "clip_norm", "value_clip", "huber"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"ppo.{name}: got {value}, expected more than 0")
        for name in ("entropy", "value"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"ppo.{name}: got {getattr(self, name)}, expected 0 or more")
        if not 0 < self.clip < 1:
            raise ValueError(f"ppo.clip: got {self.clip}, expected between 0 and 1")
        if any(size < 1 for size in self.critic_hidden):
            raise ValueError(f"ppo.critic_hidden: got {list(self.critic_hidden)}, expected sizes of 1 or more")
