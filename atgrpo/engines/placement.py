"""Which rank runs an engine, and on which GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from atgrpo.engines.base import Engine, EngineError
from atgrpo.engines.process import ProcessEngine, Transfer, on_every_rank
from atgrpo.engines.weight_files import walk
from atgrpo.ranks import Ranks
from atgrpo.types import Completion, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProcess:
    """How engines run beside a trainer of several processes.

    Args:
        transfer: See ``ProcessEngine``.
        timeout_s: See ``ProcessEngine``.
    """

    transfer: Transfer = "file"
    timeout_s: float = 600.0

    def place(
        self, start: Callable[..., Engine], ranks: Ranks, *, gpu: int | None, tensor_parallel_size: int
    ) -> Callable[..., Engine]:
        """What starts this rank's engine.

        An engine that is split over several GPUs runs on the first of that many ranks and takes all their GPUs; the
        others have an ``IdleEngine``. Without GPUs an engine shares the cores of its rank.

        Args:
            start: Starts the engine itself.
            ranks: The processes of the run.
            gpu: Number of this rank's GPU among those that are visible; None without one.
            tensor_parallel_size: GPUs of an engine.

        Raises:
            ValueError: the ranks of a machine cannot be divided so.
        """
        size = tensor_parallel_size
        if ranks.local_size % size:
            raise ValueError(
                f"tensor_parallel_size: got {size}, expected a divisor of the {ranks.local_size} processes of a machine"
            )
        if ranks.local_rank % size:
            return partial(IdleEngine, ranks=ranks, transfer=self.transfer)
        return partial(
            ProcessEngine,
            start,
            ranks=ranks,
            device=None if gpu is None else list(range(gpu, gpu + size)),
            cores=sorted(os.sched_getaffinity(0)) if gpu is None else None,
            transfer=self.transfer,
            timeout_s=self.timeout_s,
        )


class IdleEngine:
    """Stands where another rank's engine serves this rank's GPU: it is asked for nothing and takes part in pushes."""

    name: ClassVar[str] = "none (another rank's)"
    exact: ClassVar[bool] = False

    def __init__(self, models: Mapping[str, str | Path], *, ranks: Ranks, transfer: Transfer, **rest: Any) -> None:
        self._ranks = ranks
        self._transfer = transfer
        on_every_rank(ranks, lambda: None)

    def submit(self, ticket: int, request: Request) -> None:
        """Refuses."""
        raise EngineError("a rank without an engine of its own was asked for completions")

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        """Nothing is ever finished."""
        return []

    def load_weights(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Helps the others to gather them."""
        on_every_rank(self._ranks, lambda: walk(weights))
        if self._transfer == "file":
            on_every_rank(self._ranks, lambda: None)  # while the others read it

    def sleep(self) -> None: ...

    def wake(self) -> None:
        """Waits for the others."""
        on_every_rank(self._ranks, lambda: None)

    def stats(self) -> Mapping[str, float]:
        """None."""
        return {}

    def close(self) -> None: ...
