"""A Hugging Face causal language model as a policy, trained in full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from atgrpo.functional.logprobs import chunked_token_logprobs
from atgrpo.policies.sources import model_folder
from atgrpo.types import Minibatch


class TokenScores(NamedTuple):
    """What the policy says of a minibatch's tokens; 0 where ``loss_mask`` is False.

    A tuple, because FSDP2 only finds the tensors of a module's output in containers that it can flatten.
    """

    logprobs: Float[Tensor, "B T"]
    entropy: Float[Tensor, "B T"]
    """Of the distribution each token was drawn from; carries a gradient only when asked to."""


class CausalLMPolicy(nn.Module):
    """Weights in float32, dropout off.

    Args:
        model: What ``policies.sources.model_folder`` accepts: ``smollm2`` (embedded), ``tiny``, a folder, a hub name.
        attention: Attention implementation of transformers; only these two take an arbitrary mask.
        gradient_checkpointing: Recompute activations in the backward pass.
        logits_chunk: Trained tokens whose logits are alive at once.
        trainable: False freezes the policy: it plays, its optimiser is not made.

    Raises:
        ValueError: the architecture changes its logits after the head (soft-capping, scaling), or attends within a
            window; the packed forward pass would miss both.
    """

    def __init__(
        self,
        model: str,
        *,
        attention: Literal["sdpa", "eager"] = "sdpa",
        gradient_checkpointing: bool = False,
        logits_chunk: int = 1024,
        trainable: bool = True,
    ) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        super().__init__()
        self.folder: Path = model_folder(model)
        self.logits_chunk = logits_chunk
        self.trainable = trainable
        self.attention = attention
        config = AutoConfig.from_pretrained(self.folder)
        # Before the model is built: attention modules keep their own copy of the number.
        for name, value in vars(config).items():
            if "drop" in name and isinstance(value, float):
                setattr(config, name, 0.0)
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            self.folder, config=config, dtype=torch.float32, attn_implementation=attention
        )
        known = ("final_logit_softcapping", "logit_scale", "logits_scaling")
        if changed := [name for name in known if getattr(self.model.config, name, None)]:
            raise ValueError(f"{model} got {', '.join(changed)} in its configuration, expected plain logits")
        if "sliding_attention" in (getattr(self.model.config, "layer_types", None) or ()):
            raise ValueError(
                f"{model} got layers of sliding attention, expected full attention: packing replaces the mask"
            )
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        if gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.requires_grad_(trainable)

    def forward(self, batch: Minibatch, temperature: float, *, entropy_grad: bool = False) -> TokenScores:
        """Log-probs of the trained tokens under ``softmax(logits / temperature)``, and entropies."""
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
            chunk=self.logits_chunk,
            entropy_grad=entropy_grad,
        )
        flat = torch.zeros_like(batch.weights)
        at = (rows, columns)
        return TokenScores(flat.index_put(at, logprobs), flat.index_put(at, entropy))

    def export_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in the Hugging Face checkpoint, tensor), one parameter at a time; tied parameters once."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def save(self, folder: Path) -> None:
        """Writes a Hugging Face folder, tokenizer included, that transformers and vLLM load."""
        from transformers import AutoTokenizer

        self.model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(self.folder).save_pretrained(folder)


def branch_mask(branch_ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """Entry [b, i, j]: token i may look at token j, which is no later and in the prompt or in i's own branch.

    Padding (-1) is a branch of its own, so that no row of the mask is empty (an empty row is NaN in softmax).
    """
    same = branch_ids[:, :, None] == branch_ids[:, None, :]
    prompt = (branch_ids == 0)[:, None, :] & (branch_ids >= 0)[:, :, None]
    causal = torch.ones(branch_ids.shape[1], branch_ids.shape[1], dtype=torch.bool, device=branch_ids.device).tril()
    return (same | prompt) & causal
