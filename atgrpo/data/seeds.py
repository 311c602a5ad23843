"""Samples that are nothing but a seed, for environments that make their own problems."""

from __future__ import annotations

import random
from collections.abc import Sequence

from atgrpo.data.base import DrawnData, Split
from atgrpo.types import Sample

HELDOUT_SHARE = 8
"""One in so many seeds is held out."""


class Seeds(DrawnData):
    """Samples with ``meta["seed"]`` and one prompt for all; what a seed means is the environment's to say.

    A seed is of one split for good, whatever the sizes: the multiples of ``HELDOUT_SHARE`` are held out. Where an
    environment makes equal problems of different seeds, the splits share them.

    Args:
        prompt: What the agents are asked, besides what the environment shows.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which seeds are drawn.
    """

    def __init__(self, prompt: str = "", train_size: int = 4096, heldout_size: int = 256, seed: int = 0) -> None:
        super().__init__(train_size, heldout_size, seed)
        self._prompt = prompt

    def _generate(self, name: Split) -> Sequence[Sample]:
        drawn = random.Random(f"{self._seed}-{name}").sample(range(2**28), self._sizes[name])
        if name == "heldout":
            seeds = [HELDOUT_SHARE * number for number in drawn]
        else:
            seeds = [number + number // (HELDOUT_SHARE - 1) + 1 for number in drawn]
        return tuple(Sample(f"{name}-{seed}", self._prompt, "", {"seed": seed}) for seed in seeds)
