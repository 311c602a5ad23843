"""The adapters of a vLLM engine: one slot for each policy, filled anew at every push."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from atgrpo.engines.adapters import Adapter
from atgrpo.engines.base import EngineError
from atgrpo.engines.common import memory_folder

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Sizes of a slot that vLLM has."""


class VLLMAdapters:
    """Which version of its adapter each policy's requests go to.

    A policy keeps its slot's number. Its name changes with every push: vLLM files prompts it has seen under it, so that
    what the old weights computed is not found again.
    """

    def __init__(self, adapters: Mapping[str, Adapter], hosts: Mapping[str, str]) -> None:
        self._adapters = adapters
        self._hosts = hosts
        self._slots = {policy: slot for slot, policy in enumerate(adapters, start=1)}
        self._versions = itertools.count()
        self._current: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._adapters)

    def __contains__(self, policy: object) -> bool:
        return policy in self._adapters

    def settings(self, host: str) -> dict[str, Any]:
        """Arguments of ``EngineArgs`` for the engine of this host; none where it serves no adapter."""
        served = [adapter for policy, adapter in self._adapters.items() if self._hosts[policy] == host]
        if not served:
            return {}
        rank = max(adapter.rank for adapter in served)
        if rank > RANKS[-1]:
            raise ValueError(f"rank: got {rank}, expected at most {RANKS[-1]}, vLLM's largest")
        return {
            "enable_lora": True,
            "max_loras": len(served),
            "max_lora_rank": next(size for size in RANKS if size >= rank),
        }

    def load(self, llm: Any, policy: str, folder: Path | None = None) -> None:
        """Fills the policy's slot from a folder; from the one that it started with if none is given."""
        from vllm.lora.request import LoRARequest

        name, path = f"{policy}-{next(self._versions)}", str(folder or self._adapters[policy].folder)
        if not llm.add_lora(LoRARequest(name, self._slots[policy], path, load_inplace=True)):
            raise EngineError(f"vLLM did not take the adapter of policy {policy!r}")
        self._current[policy] = LoRARequest(name, self._slots[policy], path)

    def push(self, llm: Any, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """The same with new weights."""
        adapter = self._adapters[policy]
        received = adapter.received(policy, weights)
        with memory_folder() as folder:
            adapter.write(folder, received)
            self.load(llm, policy, folder)

    def request(self, policy: str) -> Any:
        """What a request of this policy is sent with; None without an adapter."""
        return self._current.get(policy)
