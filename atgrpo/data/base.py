"""What a dataset must offer, and what all of ours share."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from atgrpo.envs.answers import JudgeError, final_answer, is_scorable
from atgrpo.types import Sample

Split = Literal["train", "heldout"]
MISSES = 2000
"""Draws in a row without a new sample after which there are taken to be no more."""
PATIENCE = 20.0
"""Seconds of computing without a new sample after which the settings are taken to be too hard to meet."""


class TaskData(ABC):
    """Two disjoint lists of samples. Equal settings give equal lists, in every process."""

    @abstractmethod
    def split(self, name: Split) -> Sequence[Sample]:
        """The samples of one split: ids are unique over both, and no prompt of one stands in the other."""


class DrawnData(TaskData):
    """Samples that are made by rule, each split on the first call.

    Args:
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which samples are drawn.

    Raises:
        ValueError: a split is to be empty.
    """

    def __init__(self, train_size: int, heldout_size: int, seed: int) -> None:
        check_size("train_size", train_size)
        check_size("heldout_size", heldout_size)
        self._sizes = {"train": train_size, "heldout": heldout_size}
        self._seed = seed
        self._splits: dict[str, Sequence[Sample]] = {}

    def split(self, name: Split) -> Sequence[Sample]:
        """The samples of one split.

        Raises:
            ValueError: the settings do not allow for so many different ones.
        """
        check_split(name)
        if name not in self._splits:
            self._splits[name] = self._generate(name)
        return self._splits[name]

    @abstractmethod
    def _generate(self, name: Split) -> Sequence[Sample]:
        """Makes the samples of one split; no text occurs twice."""


class DistinctData(DrawnData):
    """Samples that are drawn by chance, one by one, until enough of them differ."""

    def _generate(self, name: Split) -> Sequence[Sample]:
        rng = random.Random(f"{self._seed}-{name}")
        samples: dict[str, Sample] = {}
        misses, since = 0, time.thread_time()
        while len(samples) < self._sizes[name]:
            sample = self._draw(rng, name, samples)
            if sample is not None and sample.prompt not in samples:
                samples[sample.prompt] = sample
                misses, since = 0, time.thread_time()
                continue
            misses += 1
            why = f"{name}_size got {self._sizes[name]}, expected at most about {len(samples)}"
            if misses == MISSES:
                raise ValueError(why)
            if time.thread_time() - since > PATIENCE:
                raise ValueError(f"{why}: {misses} draws in {PATIENCE:g} s gave no other; expected easier settings")
        return tuple(samples.values())

    @abstractmethod
    def _draw(self, rng: random.Random, name: Split, taken: Mapping[str, Sample]) -> Sample | None:
        """The next sample, called ``{name}-{len(taken)}``; None where the draw broke a rule or is of the other split.

        Args:
            rng: What all draws of the split take their numbers from.
            name: The split.
            taken: Prompt -> sample, of those that there are.
        """


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
