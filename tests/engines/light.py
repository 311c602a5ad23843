"""An engine that starts in no time and answers with what it knows of itself, to be run in other processes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from atgrpo.engines.base import EngineError
from atgrpo.types import Completion, Request

CRASH, HANG, DIE, SLOW = (1,), (2,), (3,), (4,)
"""Prompts that make the engine do so. Longer ones that start with SLOW are slow, too."""


class Light:
    """One request per step: its prompt comes back, and ``facts`` as the text."""

    name = "light"
    exact = True

    def __init__(self, models: Mapping[str, str], *, fault: str | None = None, **rest: Any) -> None:
        if fault == "error":
            raise LookupError("no model\nof that kind")
        if fault == "death":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "ours":
            raise EngineError("the folder is empty")
        self.models, self.rest = dict(models), rest
        self.weights: dict[str, dict[str, list[float]]] = {}
        self.calls: Counter[str] = Counter()
        self.queue: deque[tuple[int, Request]] = deque()

    def facts(self) -> dict[str, Any]:
        return {
            "models": self.models,
            "rest": self.rest,
            "weights": self.weights,
            "environment": dict(os.environ),
            "cores": sorted(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
        }

    def submit(self, ticket: int, request: Request) -> None:
        if request.n < 1:
            raise ValueError(f"request got n={request.n}")
        self.queue.append((ticket, request))

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        if not self.queue:
            return []
        ticket, request = self.queue.popleft()
        if request.prompt_ids == CRASH:
            raise LookupError("no such\ntoken")
        if request.prompt_ids == DIE:
            os._exit(7)
        if request.prompt_ids[:1] in (HANG, SLOW):
            time.sleep(0.2 if request.prompt_ids[:1] == SLOW else 1000)
        ids = request.prompt_ids
        return [(ticket, [Completion(ids, (-0.5,) * len(ids), json.dumps(self.facts(), default=str), "stop")])]

    def load_weights(self, policy: str, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self.weights[policy] = {name: tensor.flatten().tolist() for name, tensor in weights}
        if "unknown" in self.weights[policy]:
            raise EngineError("unknown is unknown to the model")
        if "deadly" in self.weights[policy]:
            os._exit(8)
        if self.rest.get("refuses") in self.weights[policy].values():
            raise EngineError("not I")

    def sleep(self) -> None:
        self.calls["sleep"] += 1

    def wake(self) -> None:
        self.calls["wake"] += 1

    def stats(self) -> Mapping[str, float]:
        return dict(self.calls)

    def close(self) -> None:
        if (mark := self.rest.get("mark")) is not None:
            with open(mark, "w") as file:
                file.write("closed")
