"""A Hugging Face causal language model as a policy, trained in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from atgrpo.policies.packed import Attention, PackedLM, PackedPolicy, save_tokenizer
from atgrpo.policies.sharding import named_full
from atgrpo.policies.sources import model_folder
from atgrpo.types import Minibatch


class CausalLMPolicy(PackedPolicy):
    """Weights in float32, dropout off.

    Args:
        model: What ``policies.sources.model_folder`` accepts: ``smollm2`` (embedded), ``tiny``, a folder, a hub name.
        name: The policy's name. All kinds of policies are built alike; this one has no use for it.
        peers: The run's policies built before; one of them may have the same frozen copy.
        attention: Attention implementation of transformers; only these two take an arbitrary mask.
        gradient_checkpointing: Recompute activations in the backward pass.
        logits_chunk: Trained tokens whose logits are alive at once.
        trainable: False freezes the policy: it plays, its optimiser is not made.
        meta: Never hold all weights in one process: each rank reads its own part of the folder's files.
        reference: Keep a frozen copy of the starting weights for ``reference_logprobs``.

    Raises:
        ValueError: the architecture is none that ``PackedLM`` takes.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        peers: Mapping[str, nn.Module] | None = None,
        attention: Attention = "sdpa",
        gradient_checkpointing: bool = False,
        logits_chunk: int = 1024,
        trainable: bool = True,
        meta: bool = False,
        reference: bool = False,
    ) -> None:
        folder = model_folder(model)
        packed = PackedLM(folder, attention=attention, gradient_checkpointing=gradient_checkpointing, meta=meta)
        super().__init__(folder, packed, logits_chunk=logits_chunk, trainable=trainable)
        packed.requires_grad_(trainable)
        self.reference: PackedLM | None = None
        if reference:
            self.reference = self._shared_reference(peers or {}) or PackedLM(
                folder, attention=attention, gradient_checkpointing=False, meta=meta
            ).requires_grad_(False)

    def _shared_reference(self, peers: Mapping[str, nn.Module]) -> PackedLM | None:
        for peer in peers.values():
            if isinstance(peer, CausalLMPolicy) and peer.reference is not None and peer.folder == self.folder:
                return peer.reference
        return None

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All weights; tied parameters once."""
        if self.trainable:
            yield from self.packed.named_parameters(prefix="packed")

    @torch.no_grad()
    def reference_logprobs(self, batch: Minibatch, temperature: float) -> Float[Tensor, "B T"]:
        """Log-probs by the frozen copy of the starting weights.

        Raises:
            ValueError: the policy was built without ``reference``.
        """
        if self.reference is None:
            raise ValueError(
                f"reference: got False for the policy from {self.folder}, expected True to compare with it"
            )
        logprobs: Tensor = self.reference(batch, temperature, self.logits_chunk).logprobs
        return logprobs

    def export_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in the Hugging Face checkpoint, tensor), one parameter at a time; tied parameters once."""
        yield from named_full(self.model)

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder, tokenizer included, that transformers and vLLM load."""
        self.model.save_pretrained(folder, state_dict=dict(self.export_weights()))
        save_tokenizer(self.folder, folder)
