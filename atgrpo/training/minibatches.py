"""One iteration's micro-batches, as Lightning walks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from atgrpo.types import Minibatch


@dataclass
class Minibatches:
    """One iteration's plan: sized, and lazy in ``__iter__``, which Lightning calls more than once."""

    iteration: int
    batches: Sequence[Minibatch]
    done: int = 0
    """Micro-batches that have been learned from, which is later than that they were handed out."""

    def __len__(self) -> int:
        """Number of micro-batches."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Minibatch]:
        """From the start."""
        yield from self.batches

    @property
    def learned(self) -> bool:
        """The iteration has been trained to its end."""
        return self.done >= len(self.batches)
