"""Groups by prompt instance and agent: the first half of AT-GRPO, turns pooled."""

from __future__ import annotations

from atgrpo.rollout.grouping import agent
from atgrpo.training.callbacks.at_grpo import GroupRelative


class AgentWise(GroupRelative):
    """All turns of an agent compete with each other."""

    key = staticmethod(agent)
