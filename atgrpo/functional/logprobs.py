"""Log-probs and entropies of given tokens under the distribution that is sampled from."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MAX_LOG_RATIO = 20.0
"""Differences of log-probs are cut here before ``exp``: an infinite ratio with a zero gradient makes NaN."""


def token_logprobs(
    logits: Float[Tensor, "*S V"], targets: Int[Tensor, "*S"], *, temperature: float, entropy_grad: bool = False
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Log-prob of each target and entropy of each position, under ``softmax(logits / temperature)``.

    Computed in float32 whatever the dtype of ``logits``. The entropy is a number to log unless ``entropy_grad``, which
    an entropy bonus needs; it keeps one more tensor of the size of the logits. Logits of minus infinity are allowed.

    Raises:
        ValueError: shapes do not fit, or a temperature that is not positive (greedy choices have no log-prob).
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature: got {temperature}, expected a positive number")
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"shape of targets: got {tuple(targets.shape)}, expected {tuple(logits.shape[:-1])}")
    scaled = logits.float() / temperature
    # log_softmax would keep a second tensor of the size of the logits for one number per position.
    normaliser = scaled.logsumexp(dim=-1)
    logprobs = scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        probs = (scaled - normaliser.unsqueeze(-1)).exp()
        entropy = normaliser - (probs * torch.where(probs > 0, scaled, 0.0)).sum(dim=-1)
    return logprobs, entropy


def chunked_token_logprobs(
    hidden: Float[Tensor, "N H"],
    lm_head: Callable[[Tensor], Tensor],
    targets: Int[Tensor, " N"],
    *,
    temperature: float,
    chunk: int,
    entropy_grad: bool = False,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """``token_logprobs(lm_head(hidden), ...)`` with the logits of at most ``chunk`` positions alive at any time.

    Each chunk's logits are computed again in the backward pass (arXiv:1604.06174), so ``lm_head`` must be
    deterministic. Without positions the result is empty and the graph attached.

    Raises:
        ValueError: as ``token_logprobs``, or ``chunk`` below 1.
    """
    if chunk < 1:
        raise ValueError(f"chunk: got {chunk}, expected 1 or more")
    if hidden.shape[:-1] != targets.shape:
        raise ValueError(f"shape of targets: got {tuple(targets.shape)}, expected {tuple(hidden.shape[:-1])}")

    def of_chunk(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(lm_head(states), ids, temperature=temperature, entropy_grad=entropy_grad)

    parts = [
        checkpoint(of_chunk, states, ids, use_reentrant=False, preserve_rng_state=False)
        for states, ids in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)
