"""The processes of a run and what they tell each other; everything is a no-op for one process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where this process stands among those of the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among the processes of this machine."""
    local_size: int = 1
    leader: int = 0
    """The rank that writes what the processes of this machine share."""

    @classmethod
    def current(cls) -> Ranks:
        """As torch.distributed says once the trainer has set it up, else one process."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        rank, size = dist.get_rank(), dist.get_world_size()
        # Lightning, torchrun and SLURM name the place on the machine differently; who shares it is found by asking.
        machines = _gathered(os.uname().nodename, size)
        here = [r for r, machine in enumerate(machines) if machine == machines[rank]]
        return cls(rank, size, here.index(rank), len(here), here[0])

    def gather(self, item: T) -> list[T]:
        """``item`` of every rank, in order, on every rank. All ranks must call it; nobody goes on before all have."""
        return [item] if self.size == 1 else _gathered(item, self.size)

    def share(self) -> list[int]:
        """Cores of this machine that are this process's own, about as many for each."""
        cores = sorted(os.sched_getaffinity(0))
        return cores[self.local_rank :: self.local_size] or cores


ONE = Ranks()
"""The only process."""


def lost_peer(error: BaseException) -> bool:
    """Whether it says that another process of the run has ended; gloo has no class of its own for that."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    return isinstance(error, RuntimeError) and "gloo" in str(error) and "onnection" in str(error)


def _gathered(item: T, size: int) -> list[T]:
    items: list[T | None] = [None] * size
    dist.all_gather_object(items, item)
    return items  # type: ignore[return-value]  # every place is filled
