"""Scores of an estimator, and one small tree that is worked out by hand in several tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.types import Rewards, Rollout, Turn
from tests.rollout.helpers import make_rollout, make_turn


def score(callback: AdvantageCallback, *turns: Turn, trainer: Any = None) -> list[Turn]:
    """The turns of one rollout, scored."""
    return [turn for r in callback.on_rollout_end(trainer, None, [make_rollout(*turns)]) for turn in r.turns]


def advantages(callback: AdvantageCallback, *turns: Turn) -> list[float | None]:
    return [turn.advantage for turn in score(callback, *turns)]


def node(agent: str, credits: Sequence[float | None], kept: int, **where: Any) -> list[Turn]:
    """The candidates of one agent in one turn."""
    return [make_turn(agent=agent, branch=i, credit=c, selected=i == kept, **where) for i, c in enumerate(credits)]


def small_tree(tree: int = 0) -> list[Turn]:
    """a's second candidate was kept (its own credit, 9, is no leaf's), then b's; leaves 0, 4 and 2.

    V: 0 and 3 for a, 4 and 2 for b, 2 for the root.
    """
    return [*node("a", [0.0, 9.0], kept=1, tree=tree), *node("b", [4.0, 2.0], kept=1, tree=tree)]


def with_rewards(turn: Turn, credit: float | None, local: float | None) -> Turn:
    return replace(turn, rewards=Rewards(None, local, credit))


def of_sample(sample: str, turns: Sequence[Turn]) -> list[Turn]:
    return [replace(turn, key=replace(turn.key, sample_id=sample)) for turn in turns]


def keyed(rollouts: Sequence[Rollout]) -> dict[Any, float | None]:
    return {turn.key: turn.advantage for r in rollouts for turn in r.turns}
