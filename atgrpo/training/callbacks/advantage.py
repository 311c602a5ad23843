"""What every advantage estimator is: one method, called once for each batch of fresh rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightning as L
import torch
from jaxtyping import Float, Int
from torch import Tensor

from atgrpo.functional.advantages import group_ids_from_keys
from atgrpo.rollout.grouping import GroupKey
from atgrpo.types import Rollout, Turn

Estimate = Callable[[Float[Tensor, " N"], Int[Tensor, " N"]], Float[Tensor, " N"]]
"""(rewards, group ids) -> advantages; NaN where the reward is."""


class AdvantageCallback(L.Callback):
    """Scores rollouts between collecting them and learning from them. Subclass it for an estimator of your own."""

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """The same rollouts with ``group`` and ``advantage`` set on every turn that has a credit."""
        raise NotImplementedError


def score_by_group(rollouts: Sequence[Rollout], key: GroupKey, estimate: Estimate) -> list[Rollout]:
    """Scores each turn against the turns that share its key. Turns without a credit stay excluded."""
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    groups = group_ids_from_keys([key(turn) for turn in turns])
    advantages = estimate(credits_of(turns), groups)
    return with_scores(rollouts, groups.tolist(), advantages.tolist())


def credits_of(turns: Sequence[Turn]) -> Float[Tensor, " N"]:
    """The turns' credits, NaN where missing."""
    known = (turn.rewards.credit for turn in turns)
    return torch.tensor([math.nan if credit is None else credit for credit in known], dtype=torch.float64)


def with_scores(rollouts: Sequence[Rollout], groups: Sequence[int], advantages: Sequence[float]) -> list[Rollout]:
    """Rollouts with flat ``groups`` and ``advantages`` written onto their turns, in order; NaN is excluded."""
    scores = iter(zip(groups, advantages, strict=True))
    return [replace(r, turns=tuple(_with_score(turn, *next(scores)) for turn in r.turns)) for r in rollouts]


def _with_score(turn: Turn, group: int, advantage: float) -> Turn:
    return turn if math.isnan(advantage) else replace(turn, group=group, advantage=advantage)
