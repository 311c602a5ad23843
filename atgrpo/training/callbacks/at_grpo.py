"""AT-GRPO: a candidate against the other candidates of the same prompt instance, agent and turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from atgrpo.functional.advantages import group_relative_advantages
from atgrpo.rollout.grouping import GroupKey, agent_turn
from atgrpo.training.callbacks.advantage import AdvantageCallback, score_by_group
from atgrpo.types import Rollout


class GroupRelative(AdvantageCallback):
    """``A = (r - mean) / (std + eps)`` within the groups of a key; the base of every key-only variant.

    Args:
        scale_by_std: Divide by the group's standard deviation (ddof=1).
        eps: Added to the standard deviation.
    """

    key: GroupKey

    def __init__(self, scale_by_std: bool = True, eps: float = 1e-6) -> None:
        self.estimate = partial(group_relative_advantages, scale_by_std=scale_by_std, eps=eps)

    def on_rollout_end(self, trainer: Any, pl_module: Any, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Scores by ``key``."""
        return score_by_group(rollouts, type(self).key, self.estimate)


class ATGRPO(GroupRelative):
    """Agent- and turn-wise groups (arXiv:2510.11062). With the tree sampler all members answered the same prompt."""

    key = staticmethod(agent_turn)
