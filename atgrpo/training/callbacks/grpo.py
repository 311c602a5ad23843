"""Plain GRPO (arXiv:2402.03300) on whole trajectories: one return, one vote, broadcast to every step."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from atgrpo.functional.advantages import group_ids_from_keys, group_relative_advantages
from atgrpo.rollout.grouping import prompt, trajectory
from atgrpo.training.callbacks.advantage import AdvantageCallback, credits_of, with_scores
from atgrpo.types import Rollout, Turn


class GRPO(AdvantageCallback):
    """Trajectories of a prompt against each other; needs ``sampler=parallel``.

    A trajectory's return is the mean credit of its steps, which under ``credit: outcome`` is the credit of each. A
    trajectory with a step that could not be judged is left out, and none of its steps keeps a credit.

    Args:
        scale_by_std: Divide by the standard deviation over the prompt's trajectories (ddof=1).
        eps: Added to the standard deviation.
    """

    def __init__(self, scale_by_std: bool = True, eps: float = 1e-6) -> None:
        self.estimate = partial(group_relative_advantages, scale_by_std=scale_by_std, eps=eps)

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores trajectories, then gives each of their turns the trajectory's advantage.

        Raises:
            ValueError: the rollouts are trees, which have no trajectories.
        """
        turns = [turn for rollout in rollouts for turn in rollout.turns]
        if any(not turn.selected for turn in turns):
            raise ValueError("advantage=grpo got trees, expected trajectories: use sampler=parallel")
        of_turn = group_ids_from_keys([trajectory(turn) for turn in turns])
        n = int(of_turn.max()) + 1 if turns else 0
        counts = torch.bincount(of_turn, minlength=n)
        returns = torch.zeros(n, dtype=torch.float64).index_add_(0, of_turn, credits_of(turns)) / counts
        prompts: dict[int, Hashable] = {int(i): prompt(turn) for i, turn in zip(of_turn, turns, strict=True)}
        groups = group_ids_from_keys([prompts[i] for i in range(n)])
        advantages = self.estimate(returns, groups)
        scored = with_scores(rollouts, groups[of_turn].tolist(), advantages[of_turn].tolist())
        return [replace(r, turns=tuple(map(_left_out_if_unscored, r.turns))) for r in scored]


def _left_out_if_unscored(turn: Turn) -> Turn:
    return turn if turn.advantage is not None else replace(turn, rewards=replace(turn.rewards, credit=None))
