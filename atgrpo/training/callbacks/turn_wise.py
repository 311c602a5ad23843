"""Groups by prompt instance and turn: the second half of AT-GRPO, agents pooled."""

from __future__ import annotations

from atgrpo.rollout.grouping import turn_number
from atgrpo.training.callbacks.at_grpo import GroupRelative


class TurnWise(GroupRelative):
    """All agents of a turn compete with each other."""

    key = staticmethod(turn_number)
