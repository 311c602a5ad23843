"""Trains four tiny policies on given turns, on as many gloo processes as asked for; c and d are adapters on one base.

    python -m tests.training.fixed_steps <folder> <processes>

Writes ``rank_<r>.pt`` into the folder: the whole weights at the end, and of every iteration each policy's metrics, the
number of trained tokens on this rank and how often gradients were added up.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.policies.lora import LoRAPolicy
from atgrpo.policies.sharding import named_full
from atgrpo.ranks import Ranks
from atgrpo.rollout.collate import Batching, make_minibatches
from atgrpo.training.loss import LossSettings
from atgrpo.training.minibatches import Minibatches
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.schedule import Schedule
from atgrpo.training.strategy import FSDP2
from atgrpo.types import Turn
from tests.rollout.helpers import make_rollout, make_turn
from tests.training.bare import bare_trainer

STEPS: dict[str, tuple[int, list[tuple[str, list[int]]]]] = {
    "about as much for each rank": (4096, [("a", [40, 30]), ("a", [35, 40]), ("b", [20, 9]), ("b", [10, 10])]),
    "adapters": (4096, [("c", [40, 30]), ("c", [35, 40]), ("d", [20, 9])]),
    "900 tokens against 100": (4096, [("a", [450, 450]), ("a", [50, 50]), ("b", [5, 5])]),
    "nothing of b for the second rank": (4096, [("a", [8, 8]), ("a", [9, 7]), ("b", [6, 6])]),
    "nothing to learn": (4096, []),
    "eight pieces": (64, [("a", [20, 20])] * 8),
}
"""What it shows -> (tokens of a micro-batch, (policy, lengths of the responses to one prompt) ...)."""


def turns(step: int) -> list[Turn]:
    _, prompts = list(STEPS.values())[step]
    found = []
    for number, (policy, lengths) in enumerate(prompts):
        for branch, length in enumerate(lengths):
            ids = [4 + (7 * i + 13 * number + 29 * branch + step) % 90 for i in range(length)]
            advantage = 1.0 - 1.5 * branch + 0.1 * number
            found.append(make_turn(ids, (5, 6 + number, 7), policy=policy, branch=branch, advantage=advantage))
    return found


class Given(L.LightningDataModule):
    """One iteration per entry of ``STEPS``."""

    def __init__(self) -> None:
        super().__init__()
        self.number = -1
        self.seen: list[dict[str, Any]] = []

    def train_dataloader(self) -> Minibatches:
        self.number += 1
        budget, _ = list(STEPS.values())[self.number]
        batching = Batching(tokens_per_microbatch=budget)
        rollouts = [make_rollout(*turns(self.number))]
        plan = make_minibatches(rollouts, list("abcd"), batching, seed=0, ranks=Ranks.current())
        self.seen.append({"tokens": {p: sum(int(b.loss_mask.sum()) for b in plan if b.policy == p) for p in "abcd"}})
        self.seen[-1]["microbatches"] = {p: sum(b.policy == p for b in plan) for p in "abcd"}
        return Minibatches(self.number, plan)


class Watch(L.Callback):
    """Counts how often gradients are added up over the ranks."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.count, add_up = 0, dist.reduce_scatter_single

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            return add_up(*args, **kwargs)

        dist.reduce_scatter_single = counted

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        trainer.datamodule.seen[-1] |= {"added up": self.count, "metrics": pl_module.pop_stats()}
        self.count = 0


def main(folder: Path, processes: int) -> None:
    module = MultiPolicyModule(
        policies={
            "a": partial(CausalLMPolicy, "tiny", meta=processes > 1),
            "b": partial(CausalLMPolicy, "tiny-untied", meta=processes > 1),
            "c": partial(LoRAPolicy, "tiny", r=4),
            "d": partial(LoRAPolicy, "tiny", r=4),
        },
        optimizers=dict.fromkeys("abcd", partial(torch.optim.AdamW, lr=1e-3)),
        schedule=Schedule(),
        total_steps=len(STEPS),
        loss=LossSettings(),
        clip_norm=0.5,
        temperature=1.0,
    )
    several: dict[str, Any] = {"strategy": FSDP2(), "devices": processes} if processes > 1 else {"devices": 1}
    trainer = bare_trainer(
        max_epochs=len(STEPS),
        callbacks=[Watch()],
        **several,
    )
    data = Given()
    trainer.fit(module, datamodule=data)
    weights = {f"{p}.{name}": t.clone() for p in "abc" for name, t in named_full(module.policies[p])}
    torch.save({"weights": weights, "steps": data.seen}, folder / f"rank_{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
