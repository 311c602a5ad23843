"""Dr. GRPO (arXiv:2503.20783) on AT-GRPO's groups: neither the spread of a group nor a response's length scales it."""

from __future__ import annotations

from atgrpo.training.callbacks.at_grpo import ATGRPO


class DrGRPO(ATGRPO):
    """Mean only. Its other half, the constant length in the loss, is ``batching.aggregation: constant``."""

    def __init__(self) -> None:
        super().__init__(scale_by_std=False)
