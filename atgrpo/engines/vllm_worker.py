"""What vLLM's worker is given so that weights can be pushed into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor


class WeightReceiver:
    """Mixed into vLLM's worker class; its methods are called through ``collective_rpc``."""

    model_runner: Any

    def receive_weights(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        """Loads every pushed tensor, fused and sharded as the engine's own checkpoint loader does it."""
        self.model_runner.reload_weights(weights_iterator=weights)
        _repack_tied_head(self.model_runner.get_model())

    def receive_weight_file(self, path: str) -> None:
        """The same from a safetensors file, for workers in processes of their own."""
        from safetensors.torch import load_file

        self.receive_weights(iter(load_file(Path(path)).items()))


def _repack_tied_head(model: Any) -> None:
    # On CPU the head multiplies with a packed copy of its weight; a reload refreshes the embedding that a tied head
    # shares, but not that copy.
    head = getattr(model, "lm_head", None)
    weight = getattr(head, "weight", None)
    if head is not None and weight is not None and weight.device.type == "cpu" and weight.numel():
        head.quant_method.process_weights_after_loading(head)
