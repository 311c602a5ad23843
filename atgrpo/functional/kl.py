"""Per-token estimates of KL(policy || reference) from tokens that the policy sampled."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atgrpo.functional.logprobs import MAX_LOG_RATIO
from atgrpo.functional.masked import require_mask, require_same_shape

KLEstimator = Literal["k1", "k2", "k3"]
"""With ``d = logprob - ref_logprob``: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d."""


def kl_estimate(
    logprobs: Float[Tensor, "*S"], ref_logprobs: Float[Tensor, "*S"], kind: KLEstimator
) -> Float[Tensor, "*S"]:
    """The estimate as a number to log or to subtract from a reward: it carries no gradient.

    k1 and k3 are unbiased, k1 may be negative, k3 never is; k2 is biased, never negative.
    """
    require_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs)
    return _kl(logprobs.detach() - ref_logprobs.detach(), kind)


def kl_loss(
    logprobs: Float[Tensor, "*S"],
    ref_logprobs: Float[Tensor, "*S"],
    mask: Bool[Tensor, "*S"],
    kind: Literal["k2", "k3"],
) -> Float[Tensor, "*S"]:
    """The estimate as a penalty to differentiate; 0 where ``mask`` is False.

    On tokens of the current policy the expected gradient is that of KL(policy || reference) for k2, and of
    KL(reference || policy) for k3. That of k1 is ``E[grad log p] = 0``: it would penalise nothing, so it is refused.

    Raises:
        ValueError: ``kind`` is not k2 or k3, or shapes differ.
    """
    if kind not in ("k2", "k3"):
        raise ValueError(f"kind of a KL loss: got {kind!r}, expected k2 or k3 (the gradient of k1 is zero on average)")
    require_same_shape(logprobs=logprobs, ref_logprobs=ref_logprobs, mask=mask)
    require_mask(mask)
    return _kl(torch.where(mask, logprobs - ref_logprobs.detach(), 0.0), kind)


def _kl(difference: Float[Tensor, "*S"], kind: KLEstimator) -> Float[Tensor, "*S"]:
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference**2 / 2
    if kind == "k3":
        return (-difference).clamp(max=MAX_LOG_RATIO).exp() - 1 + difference
    raise ValueError(f"kind: got {kind!r}, expected k1, k2 or k3")
