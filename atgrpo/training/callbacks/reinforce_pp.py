"""REINFORCE++ (arXiv:2501.03262): one baseline and one scale for the whole batch."""

from __future__ import annotations

from atgrpo.rollout.grouping import everything
from atgrpo.training.callbacks.at_grpo import GroupRelative


class ReinforcePlusPlus(GroupRelative):
    """``A = (R - mean) / (std + eps)`` over all responses of the iteration, whatever their prompt, agent and turn.

    R is the response's credit. Every response is a vote, so trajectories count by their turns, as in the paper. With
    ``group_filter.mode=replace`` the prompts that are grown later are a batch of their own.
    """

    key = staticmethod(everything)
