"""Which rank runs an engine, and on which GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from atgrpo.engines.base import Engine, EngineError
from atgrpo.engines.process import ProcessEngine, on_every_rank, walk
from atgrpo.ranks import Ranks
from atgrpo.types import Completion, Request


def placed(
    start: Callable[..., Engine], ranks: Ranks, *, gpu: int | None, tensor_parallel_size: int
) -> Callable[..., Engine]:
    """What starts this rank's engine in a process of its own.

    An engine that is split over several GPUs runs on the first of that many ranks and takes all their GPUs; the others
    have an ``IdleEngine``. Without GPUs an engine shares the cores of its rank.

    Args:
        start: Starts the engine itself.
        ranks: The processes of the run.
        gpu: Number of this rank's GPU among those that are visible; None without one.
        tensor_parallel_size: GPUs of an engine.

    Raises:
        ValueError: the ranks of a machine cannot be divided so.
    """
    if ranks.local_size % tensor_parallel_size:
        raise ValueError(
            f"tensor_parallel_size: got {tensor_parallel_size}, expected a divisor of the {ranks.local_size} processes "
            "of each machine"
        )
    if ranks.local_rank % tensor_parallel_size:
        return partial(IdleEngine, ranks=ranks)
    devices = None if gpu is None else list(range(gpu, gpu + tensor_parallel_size))
    cores = None if devices else sorted(os.sched_getaffinity(0))
    return partial(ProcessEngine, start, ranks=ranks, device=devices, cores=cores)


class IdleEngine:
    """Stands where another rank's engine serves this rank's GPU: it is asked for nothing and takes part in pushes."""

    name: ClassVar[str] = "none (another rank's)"
    exact: ClassVar[bool] = False

    def __init__(self, models: Mapping[str, str | Path], *, ranks: Ranks, **rest: Any) -> None:
        self._ranks = ranks
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
        on_every_rank(self._ranks, lambda: None)

    def sleep(self) -> None: ...

    def wake(self) -> None: ...

    def stats(self) -> Mapping[str, float]:
        """None."""
        return {}

    def close(self) -> None: ...
