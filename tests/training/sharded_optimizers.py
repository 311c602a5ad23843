"""A run on two gloo processes with FSDP2 shards, and the same on one; what each did is written to files."""

from __future__ import annotations

import copy
import socket
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from atgrpo.training.optimizers import AdamW8bit

RANKS = 2
STEPS = 5
SAVED_AFTER = 3
SETTINGS = {"lr": 1e-4, "weight_decay": 0.01, "min_8bit_size": 512}


class Toy(nn.Module):
    """Layers whose shards differ in kind; the loss is a sum, so no layer but ``up`` feels another."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 512)
        self.ragged = nn.Linear(512, 5)  # 3 rows and 2
        self.one_row = nn.Linear(512, 1)  # none on the second rank
        self.pair = nn.Linear(256, 2)  # 512 elements in all, 256 on a rank
        self.shifted = nn.Linear(100, 6)  # the second rank begins at element 300

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x[:, :8]).tanh()
        outputs = (self.ragged(hidden), self.one_row(hidden), self.pair(hidden[:, :256]), self.shifted(x))
        return sum(((output - 1) ** 2).mean() for output in outputs)  # type: ignore[return-value]


def toy() -> Toy:
    torch.manual_seed(0)
    return Toy()


def half_batch(step: int, rank: int) -> Tensor:
    return torch.randn(4, 100, generator=torch.Generator().manual_seed(step))[2 * rank : 2 * rank + 2]


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for name, p in model.named_parameters()
    }


def train(model: nn.Module, optimizer: AdamW8bit, steps: range, ranks: list[int]) -> list[dict[str, Tensor]]:
    """Weights after each step; ``ranks`` are those whose half of the batch this process sees."""
    after = []
    for step in steps:
        for rank in ranks:
            (model(half_batch(step, rank)) / len(ranks)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        after.append(weights(model))
    return after


def resumed(start: dict[str, Tensor], state: dict[str, Any], *, sharded: bool) -> list[dict[str, Tensor]]:
    """Weights after each step from ``SAVED_AFTER`` on, by a new model and a new optimiser."""
    model = toy()
    model.load_state_dict(start)
    if sharded:
        fully_shard(model)
    optimizer = AdamW8bit(model.parameters(), **SETTINGS)
    optimizer.load_local_state(state)
    return train(model, optimizer, range(SAVED_AFTER, STEPS), [dist.get_rank()] if sharded else [*range(RANKS)])


def run(*, sharded: bool) -> dict[str, Any]:
    """All steps; the weights after each, this rank's state in the middle and at the end."""
    model = toy()
    if sharded:
        fully_shard(model)
    optimizer = AdamW8bit(model.parameters(), **SETTINGS)
    ranks = [dist.get_rank()] if sharded else [*range(RANKS)]
    first = train(model, optimizer, range(SAVED_AFTER), ranks)
    middle = copy.deepcopy(optimizer.local_state())
    rest = train(model, optimizer, range(SAVED_AFTER, STEPS), ranks)
    names = [name for name, _ in model.named_parameters()]
    end = {names[place]: state for place, state in optimizer.local_state()["state"].items()}
    return {"weights": first + rest, "state": middle, "end": end}


def work(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    alone, together = run(sharded=False), run(sharded=True)
    start = together["weights"][SAVED_AFTER - 1]
    torch.save(together["state"], folder / f"{rank}_state.pt")
    own = torch.load(folder / f"{rank}_state.pt", weights_only=True)
    result = {
        "alone": alone,
        "together": together,
        "resumed": resumed(start, own, sharded=True),
        "resumed_from_one": resumed(start, alone["state"], sharded=True),
    }
    torch.save(result, folder / f"{rank}.pt")
    dist.destroy_process_group()


def two_processes(folder: Path) -> list[dict[str, Any]]:
    """What each rank wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port, folder), nprocs=RANKS)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]
