"""What happens to groups from which nothing can be learned because all their advantages are 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from atgrpo.types import Rollout, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Treatment of groups without variance.

    Args:
        mode: ``none`` keeps them (they weigh in the loss's denominator); ``drop`` leaves them out of it; ``replace``
            also grows further prompts until as many as asked for are informative (dynamic sampling, arXiv:2503.14476).
        cap: With ``replace``, most prompts of an iteration, as a multiple of those asked for.
    """

    mode: Literal["none", "drop", "replace"] = "none"
    cap: float = 2.0

    def __post_init__(self) -> None:
        if self.mode not in ("none", "drop", "replace") or self.cap < 1:
            raise ValueError(
                f"group_filter got mode={self.mode!r}, cap={self.cap}, expected none, drop or replace; 1 or more"
            )

    def missing(self, rollouts: Sequence[Rollout], wanted: int) -> int:
        """How many further prompts to grow, given what has been grown and scored."""
        if self.mode != "replace":
            return 0
        uninformative = sum(not any(turn.advantage for turn in r.turns) for r in rollouts)
        return max(0, min(wanted - len(rollouts) + uninformative, int(self.cap * wanted) - len(rollouts)))

    def apply(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts with dropped groups excluded from training."""
        if self.mode == "none":
            return list(rollouts)
        alive = {turn.group for r in rollouts for turn in r.turns if turn.advantage}

        def keep(turn: Turn) -> Turn:
            return turn if turn.group in alive else replace(turn, advantage=None)

        return [replace(r, turns=tuple(keep(turn) for turn in r.turns)) for r in rollouts]
