"""What the policies share: a causal language model that reads packed minibatches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from atgrpo.functional.logprobs import chunked_token_logprobs
from atgrpo.policies.meta import empty_model, fill, is_empty
from atgrpo.policies.sharding import Sharding
from atgrpo.types import Minibatch

Attention = Literal["sdpa", "eager"]
"""Attention implementations of transformers that take an arbitrary mask."""
Dtype = Literal["float32", "bfloat16"]


class PolicyError(ValueError):
    """A policy refuses its settings or its model; the message names the policy."""


class TokenScores(NamedTuple):
    """What the policy says of a minibatch's tokens; 0 where ``loss_mask`` is False.

    A tuple, because FSDP2 only finds the tensors of a module's output in containers that it can flatten.
    """

    logprobs: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    """Of the distribution each token was drawn from; carries a gradient only when asked to."""


class PackedLM(nn.Module):
    """A model of transformers, dropout off, whose forward pass scores a minibatch.

    All computation of a policy goes through this module's ``forward``: it is the unit that is sharded, also where
    several policies share it.

    Args:
        folder: Holds a Hugging Face model.
        attention: Attention implementation.
        gradient_checkpointing: Recompute activations in the backward pass.
        dtype: Of the weights.
        quantization: A ``quantization_config`` of transformers.
        meta: Start without memory for the weights; ``materialize`` reads them, each rank its own part.

    Raises:
        ValueError: the architecture changes its logits after the head (soft-capping, scaling), or attends within a
            window; the packed forward pass would miss both.
    """

    def __init__(
        self,
        folder: Path,
        *,
        attention: Attention,
        gradient_checkpointing: bool,
        dtype: Dtype = "float32",
        quantization: Any = None,
        meta: bool = False,
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        super().__init__()
        self.folder = folder
        self.attention = attention
        config = AutoConfig.from_pretrained(folder)
        # Before the model is built: attention modules keep their own copy of the number.
        for name, value in vars(config).items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)
        settings: dict[str, Any] = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
        self.model: Any = (
            empty_model(config, **settings)
            if meta
            else AutoModelForCausalLM.from_pretrained(
                folder, config=config, quantization_config=quantization, **settings
            )
        )
        _check_architecture(folder, self.model.config)
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        if gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": self.checkpoint_contexts})
        self.model.train()

    def checkpoint_contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        """Around the forward pass and the recomputation of one checkpointed layer."""
        return nullcontext(), nullcontext()

    def forward(self, batch: Minibatch, temperature: float, chunk: int, entropy_grad: bool = False) -> TokenScores:
        """Log-probs of the trained tokens under ``softmax(logits / temperature)``, and entropies.

        The logits of at most ``chunk`` trained tokens are alive at once.
        """
        mask: Tensor = branch_mask(batch.branch_ids)[:, None]
        if self.attention == "eager":  # adds what it is given to the scores, a bool as 0 or 1
            mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -torch.inf)
        hidden = self.model.base_model(
            input_ids=batch.token_ids,
            position_ids=batch.position_ids,
            attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
        rows, columns = batch.loss_mask.nonzero(as_tuple=True)
        logprobs, entropy = chunked_token_logprobs(
            hidden[rows, batch.source[rows, columns]],
            self.model.get_output_embeddings(),
            batch.token_ids[rows, columns],
            temperature=temperature,
            chunk=chunk,
            entropy_grad=entropy_grad,
        )
        flat = torch.zeros_like(batch.weights)
        at = (rows, columns)
        return TokenScores(flat.index_put(at, logprobs), flat.index_put(at, entropy))

    def shard(self, sharding: Sharding) -> None:
        """Shards every layer by itself and the rest together, once, before there are optimisers.

        Weights that no gradient can have (4-bit ones) stay whole on every rank.
        """
        if isinstance(self, FSDPModule):  # by another policy that shares it
            return
        kinds = set(self.model._no_split_modules or ())
        layers = [module for module in self.modules() if type(module).__name__ in kinds]
        sharding.apply(self, layers, [p for p in self.parameters() if not p.is_floating_point()])

    def materialize(self, device: torch.device | str) -> None:
        """Gives weights that were built without memory their memory and values."""
        if is_empty(self.model):
            fill(self.model, self.folder, device)


class PackedPolicy(nn.Module):
    """What the trainer and the team ask of a policy; subclasses say which weights are its own.

    Args:
        folder: Tokenizer and starting weights.
        packed: The model, possibly shared with other policies.
        logits_chunk: Trained tokens whose logits are alive at once.
        trainable: False freezes the policy: it plays, its optimiser is not made.
    """

    adapter: Path | None = None
    """Folder of the adapter an engine starts from; None where all weights are the policy's own."""

    def __init__(self, folder: Path, packed: PackedLM, *, logits_chunk: int, trainable: bool) -> None:
        super().__init__()
        self.folder = folder
        self.packed = packed
        self.logits_chunk = logits_chunk
        self.trainable = trainable

    @property
    def model(self) -> Any:
        """The model of transformers."""
        return self.packed.model

    def forward(self, batch: Minibatch, temperature: float, *, entropy_grad: bool = False) -> TokenScores:
        """Log-probs of the trained tokens under ``softmax(logits / temperature)``, and entropies."""
        scores: TokenScores = self.packed(batch, temperature, self.logits_chunk, entropy_grad)
        return scores

    def shard(self, sharding: Sharding) -> None:
        """Divides the weights among the ranks; see ``PackedLM.shard``."""
        for child in self.children():
            if isinstance(child, PackedLM):
                child.shard(sharding)

    def materialize(self, device: torch.device | str) -> None:
        """Reads what was built without memory, after it was sharded; see ``PackedLM.materialize``."""
        for child in self.children():
            if isinstance(child, PackedLM):
                child.materialize(device)

    def accumulate(self, more: bool) -> None:
        """Before a backward pass: ``more`` of the same step will follow, so ranks need not add up gradients yet."""
        if isinstance(self.packed, FSDPModule):
            self.packed.set_requires_gradient_sync(not more)

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """(name in this module, parameter) of what the optimiser changes; nothing if the policy is frozen."""
        raise NotImplementedError

    def reference_logprobs(self, batch: Minibatch, temperature: float) -> Float[Tensor, "B T"]:
        """Log-probs of the trained tokens by the policy as it was before any training, without a gradient."""
        raise NotImplementedError

    def export_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in the file an engine loads, tensor), one parameter at a time."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder, tokenizer included, that transformers and vLLM load."""
        raise NotImplementedError


def save_tokenizer(source: Path, folder: Path) -> None:
    """Copies the tokenizer of one model folder into another."""
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def branch_mask(branch_ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """Entry [b, i, j]: token i may look at token j, which is no later and in the prompt or in i's own branch.

    Padding (-1) is a branch of its own, so that no row of the mask is empty (an empty row is NaN in softmax).
    """
    same = branch_ids[:, :, None] == branch_ids[:, None, :]
    prompt = (branch_ids == 0)[:, None, :] & (branch_ids >= 0)[:, :, None]
    causal = torch.ones(branch_ids.shape[1], branch_ids.shape[1], dtype=torch.bool, device=branch_ids.device).tril()
    return (same | prompt) & causal


def _check_architecture(folder: Path, config: Any) -> None:
    known = ("final_logit_softcapping", "logit_scale", "logits_scaling")
    if changed := [name for name in known if getattr(config, name, None)]:
        raise ValueError(f"{folder} got {', '.join(changed)} in its configuration, expected plain logits")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise ValueError(
            f"{folder} got layers of sliding attention, expected full attention: packing replaces the mask"
        )
