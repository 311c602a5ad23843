"""REINFORCE leave-one-out (arXiv:2402.14740) on AT-GRPO's groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atgrpo.functional.advantages import leave_one_out_advantages
from atgrpo.rollout.grouping import agent_turn
from atgrpo.training.callbacks.advantage import AdvantageCallback, score_by_group
from atgrpo.types import Rollout


class RLOO(AdvantageCallback):
    """``A_i = r_i`` minus the mean of the others in its group."""

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores by prompt instance, agent and turn."""
        return score_by_group(rollouts, agent_turn, leave_one_out_advantages)
