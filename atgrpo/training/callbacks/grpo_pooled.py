"""Every response to a prompt instance in one group, whatever its agent, turn or context.

The scheme that users reported to make agents unlearn their tools: long trajectories vote more often, and responses to
different prompts share a baseline. It is here to be measured against.
"""

from __future__ import annotations

from atgrpo.rollout.grouping import prompt
from atgrpo.training.callbacks.at_grpo import GroupRelative


class PooledGRPO(GroupRelative):
    """One group per prompt instance."""

    key = staticmethod(prompt)
