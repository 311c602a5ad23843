"""In which order the training samples come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atgrpo.rollout.seeds import stream
from atgrpo.types import Sample


@dataclass
class PromptStream:
    """An endless sequence: one shuffled pass over the samples after another, each sample once per pass.

    A batch that reaches past the end of a pass goes on with the next pass, so that batches are always full, also when
    there are fewer samples than a batch holds (then a sample comes several times, each time as a tree of its own).
    """

    samples: Sequence[Sample]
    seed: int
    _orders: dict[int, list[int]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuses an empty dataset."""
        if not self.samples:
            raise ValueError("training data got 0 samples, expected at least one")

    def take(self, start: int, count: int) -> list[Sample]:
        """Positions ``start`` to ``start + count`` of the sequence."""
        n = len(self.samples)
        return [self.samples[self._order(i // n)[i % n]] for i in range(start, start + count)]

    def _order(self, number: int) -> list[int]:
        if number not in self._orders:
            order = list(range(len(self.samples)))
            stream(self.seed, "order", number).shuffle(order)
            self._orders = {k: v for k, v in self._orders.items() if k == number - 1} | {number: order}
        return self._orders[number]
