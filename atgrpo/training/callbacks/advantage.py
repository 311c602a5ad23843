"""What every advantage estimator is: one method, called once for each batch of fresh rollouts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import lightning as L
import torch
from jaxtyping import Float, Int
from torch import Tensor

from atgrpo.functional.advantages import group_ids_from_keys
from atgrpo.rollout.grouping import GroupKey
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.tree import TreeSampler
from atgrpo.types import Rollout, Turn

Estimate = Callable[[Float[Tensor, " N"], Int[Tensor, " N"]], Float[Tensor, " N"]]
"""(rewards, group ids) -> advantages; NaN where the reward is."""


class AdvantageCallback(L.Callback):
    """Scores rollouts between collecting them and learning from them. Subclass it for an estimator of your own."""

    needs: ClassVar[Literal["tree", "parallel"] | None] = None
    """The only sampler that it fits; None: any."""
    orders: ClassVar[tuple[str, ...]] = ()
    """The only ``sampler.order`` that it fits; empty: any."""
    credits: ClassVar[tuple[str, ...]] = ()
    """The only rules of ``sampler.credit`` that make it what its name says; empty: any."""

    def check_sampler(self, sampler: Any) -> None:
        """Refuses a sampler for whose rollouts the estimator is not made.

        Raises:
            ValueError: the wrong sampler, or the wrong order or credit of the right one.
        """
        if self.needs == "parallel" and not isinstance(sampler, ParallelSampler):
            self._refuse("a tree", "trajectories: use sampler=parallel")
        if self.needs == "tree" and not isinstance(sampler, TreeSampler):
            self._refuse("trajectories", "a tree: use sampler=tree")
        for setting, fitting in (("order", self.orders), ("credit", self.credits)):
            if fitting and getattr(sampler, setting) not in fitting:
                self._refuse(f"sampler.{setting}={getattr(sampler, setting)}", " or ".join(fitting))

    def turns_of(self, rollouts: Sequence[Rollout]) -> list[Turn]:
        """All turns, in order.

        Raises:
            ValueError: they are those of another sampler than the one that is needed.
        """
        turns = [turn for rollout in rollouts for turn in rollout.turns]
        if self.needs == "parallel" and any(not turn.selected for turn in turns):
            self._refuse("trees", "trajectories: use sampler=parallel")
        kept = Counter((t.key.tree, t.key.agent, t.key.turn) for t in turns if t.selected)
        if self.needs == "tree" and any(count > 1 for count in kept.values()):
            self._refuse("trajectories", "trees: use sampler=tree")
        return turns

    def _refuse(self, found: str, expected: str) -> None:
        raise ValueError(f"advantage {type(self).__name__} got {found}, expected {expected}")

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


def without_unscored(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts whose turns have a credit only where they have an advantage: the others are excluded as a whole."""
    return [replace(r, turns=tuple(map(_left_out_if_unscored, r.turns))) for r in rollouts]


def _left_out_if_unscored(turn: Turn) -> Turn:
    return turn if turn.advantage is not None else replace(turn, rewards=replace(turn.rewards, credit=None))


def _with_score(turn: Turn, group: int, advantage: float) -> Turn:
    return turn if math.isnan(advantage) else replace(turn, group=group, advantage=advantage)
