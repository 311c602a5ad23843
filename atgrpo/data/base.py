"""What a dataset must offer, and what all of ours share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

from atgrpo.envs.answers import JudgeError, final_answer, is_scorable
from atgrpo.types import Sample

Split = Literal["train", "heldout"]


class TaskData(ABC):
    """Two disjoint lists of samples. Equal settings give equal lists, in every process."""

    @abstractmethod
    def split(self, name: Split) -> Sequence[Sample]:
        """The samples of one split: ids are unique over both, and no prompt of one stands in the other."""


def check_split(name: str) -> None:
    """Refuses a split that does not exist.

    Raises:
        ValueError: ``name`` is neither ``train`` nor ``heldout``.
    """
    if name not in ("train", "heldout"):
        raise ValueError(f"split got {name!r}, expected 'train' or 'heldout'")


def check_size(field: str, size: int) -> None:
    """Refuses an empty split.

    Raises:
        ValueError: ``size`` is under 1.
    """
    if size < 1:
        raise ValueError(f"{field} got {size}, expected at least 1")


def scorable_gold(answer: str) -> str | None:
    """The gold answer in ``answer`` (its box, the number after ``####``, or all of it); None if it cannot be judged."""
    gold = final_answer(answer) or answer.strip()
    try:
        return gold if is_scorable(gold) else None
    except JudgeError:
        return None
