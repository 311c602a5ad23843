"""Role-conditioned advantages (RAE of SPIRAL, arXiv:2506.24119): a moving average for each role is the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from atgrpo.functional.advantages import group_ids_from_keys, role_baseline_advantages
from atgrpo.rollout.grouping import agent, agent_trajectory
from atgrpo.training.callbacks.advantage import AdvantageCallback, with_scores, without_unscored
from atgrpo.training.callbacks.grpo import votes
from atgrpo.types import Rollout


class RAE(AdvantageCallback):
    """``A = R - b_role``, then ``b_role <- decay * b_role + (1 - decay) * R``; needs ``sampler=parallel``.

    R is the mean credit of the role's steps in a trajectory, and each is scored by what those before it have left, in
    the order of trees and trajectories. The baselines start at 0, last over the run and are part of its checkpoints.
    They belong to no group: one whose rewards are all equal still differs from its role's past. What is reported as a
    group is the role's turns of a prompt.

    Args:
        decay: Weight of the old baseline.
    """

    needs = "parallel"

    def __init__(self, decay: float = 0.95) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"advantage RAE got decay={decay}, expected at least 0 and less than 1")
        self.decay = decay
        self.baselines: dict[str, float] = {}
        """Role -> b."""
        self._iteration = -1
        self._before: dict[str, float] = {}
        self._loaded: dict[str, Any] = {"iteration": -1}

    def state_dict(self) -> dict[str, Any]:
        """The baselines, and those before the latest iteration, which may not be finished and then comes again."""
        return {"baselines": self.baselines, "before": self._before, "iteration": self._iteration}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self.baselines, self._iteration, self._loaded = dict(state_dict["baselines"]), -1, state_dict

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores trajectories and moves the baselines.

        Raises:
            ValueError: the rollouts are trees, which have no trajectories.
        """
        turns = self.turns_of(rollouts)
        if trainer is not None:
            self._begin(trainer.datamodule.finished)
        of_turn, returns = votes(turns, agent_trajectory)
        keys = {int(i): turn.key for i, turn in zip(of_turn, turns, strict=True)}
        order = sorted(keys, key=lambda i: (keys[i].tree, keys[i].branch))
        names = sorted(self.baselines | {key.agent: 0.0 for key in keys.values()})
        moved = torch.tensor([self.baselines.get(name, 0.0) for name in names], dtype=torch.float64)
        roles = torch.tensor([names.index(keys[i].agent) for i in order], dtype=torch.long)
        scores, moved = role_baseline_advantages(returns[order], roles, moved, decay=self.decay)
        self.baselines = dict(zip(names, moved.tolist(), strict=True))
        advantages = torch.empty_like(returns)
        advantages[order] = scores
        groups = group_ids_from_keys([agent(turn) for turn in turns])
        return without_unscored(with_scores(rollouts, groups.tolist(), advantages[of_turn].tolist()))

    def _begin(self, iteration: int) -> None:
        """Several batches may be scored in one iteration; one that a checkpoint did not finish starts over."""
        if iteration == self._iteration:
            return
        if iteration == self._loaded["iteration"]:
            self.baselines = dict(self._loaded["before"])
        self._iteration, self._before = iteration, dict(self.baselines)
