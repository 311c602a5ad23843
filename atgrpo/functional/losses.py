"""The clipped policy-gradient loss of each token, and how tokens add up to a step's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from atgrpo.functional.logprobs import MAX_LOG_RATIO
from atgrpo.functional.masked import masked_sum, require_mask, require_same_shape

RatioLevel = Literal["token", "sequence"]
MismatchMode = Literal["none", "truncate", "mask"]


@dataclass(frozen=True, slots=True)
class PPOLoss:
    """Per-token results, not yet aggregated."""

    loss: Float[Tensor, "B T"]
    """0 where masked."""
    ratio: Float[Tensor, "B T"]
    """Detached; 1 where masked."""
    clipped: Bool[Tensor, "B T"]
    """True where clipping holds the objective constant, so that the token has no gradient."""


def ppo_clip_loss(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    eps_low: float,
    eps_high: float,
    dual_clip: float | None = None,
    ratio_level: RatioLevel = "token",
    branch_ids: Int[Tensor, "B T"] | None = None,
) -> PPOLoss:
    """``-min(ratio * A, clip(ratio, 1 - eps_low, 1 + eps_high) * A)``, with ``ratio = exp(logprob - old_logprob)``.

    ``dual_clip`` = c bounds the loss at ``-c * A`` where A < 0 (arXiv:1912.09729). At level ``sequence`` the log-ratio
    is first averaged over the sampled tokens of each branch (GSPO, arXiv:2507.18071); advantages should then be
    constant in a branch and the aggregation ``sequence_mean``. Masked tokens may hold anything, NaN included; a NaN
    advantage under the mask is the caller's fault and makes the loss NaN. PPO: arXiv:1707.06347.

    Raises:
        ValueError: shapes differ, a bound is out of range, or ``sequence`` without fitting ``branch_ids``.
    """
    require_same_shape(
        logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages, mask=mask, branch_ids=branch_ids
    )
    require_mask(mask)
    check_bounds(eps_low, eps_high, dual_clip)
    # Both are masked before exp and before the product, so that no 0 * inf arises in the backward pass.
    log_ratio = torch.where(mask, logprobs - old_logprobs.detach(), 0.0)
    advantages = torch.where(mask, advantages.detach(), 0.0)
    if ratio_level == "sequence":
        log_ratio = _branch_mean(log_ratio, mask, branch_ids)
    elif ratio_level != "token":
        raise ValueError(f"ratio_level: got {ratio_level!r}, expected token or sequence")
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - eps_low, 1 + eps_high) * advantages)
    clipped = ((advantages > 0) & (ratio > 1 + eps_high)) | ((advantages < 0) & (ratio < 1 - eps_low))
    if dual_clip is not None:
        negative = advantages < 0
        objective = torch.where(negative, torch.maximum(objective, dual_clip * advantages), objective)
        clipped |= negative & (ratio > dual_clip)
    return PPOLoss(loss=-objective, ratio=ratio.detach(), clipped=clipped)


def mismatch_weights(
    old_logprobs: Float[Tensor, "B T"],
    sampler_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    mode: MismatchMode,
    cap: float,
) -> Float[Tensor, "B T"]:
    """Factor on each token's loss that corrects for an engine whose log-probs are not the trainer's own.

    With ``rho = exp(old_logprob - sampler_logprob)``: ``truncate`` gives min(rho, cap) (TIS), ``mask`` gives rho where
    it is at most ``cap`` and 0 elsewhere (MIS), ``none`` gives 1. Detached; 0 where ``mask`` is False. A NaN log-prob
    under the mask stays NaN instead of passing as a weight.

    Raises:
        ValueError: shapes differ, unknown mode, or ``cap`` below 1, which would cut tokens on which both agree.
    """
    require_same_shape(old_logprobs=old_logprobs, sampler_logprobs=sampler_logprobs, mask=mask)
    require_mask(mask)
    if not cap >= 1:
        raise ValueError(f"cap: got {cap}, expected 1 or more")
    weights = (old_logprobs.detach() - sampler_logprobs.detach()).exp()
    if mode == "none":
        weights = torch.ones_like(weights)
    elif mode == "truncate":
        weights = weights.clamp(max=cap)
    elif mode == "mask":
        weights = torch.where(weights > cap, 0.0, weights)
    else:
        raise ValueError(f"mode: got {mode!r}, expected none, truncate or mask")
    return torch.where(mask, weights, 0.0)


def aggregate(
    per_token: Float[Tensor, "B T"],
    weights: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    denominator: float,
) -> Float[Tensor, ""]:
    """This micro-batch's share of the step's loss: ``sum(mask * weights * per_token) / denominator``.

    ``denominator`` belongs to the whole optimiser step, so that the shares of any split add up to the same loss. A
    fully masked micro-batch gives 0 with the graph attached, also if nothing in the step counts (denominator 0).

    Raises:
        ValueError: shapes differ, or the denominator is not positive although tokens count.
    """
    require_same_shape(per_token=per_token, weights=weights, mask=mask)
    if not denominator > 0 and (denominator != 0 or bool(mask.any())):
        raise ValueError(f"denominator: got {denominator}, expected a positive number")
    return masked_sum(per_token * weights, mask) / (denominator or 1.0)


def check_bounds(eps_low: float, eps_high: float, dual_clip: float | None) -> None:
    """Refuses clipping bounds that make no sense.

    Raises:
        ValueError: which one, and what it should be.
    """
    if not 0 <= eps_low <= 1:
        raise ValueError(f"eps_low: got {eps_low}, expected 0 to 1")
    if not eps_high >= 0:
        raise ValueError(f"eps_high: got {eps_high}, expected 0 or more")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip: got {dual_clip}, expected more than 1")


def _branch_mean(
    values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], branch_ids: Int[Tensor, "B T"] | None
) -> Float[Tensor, "B T"]:
    """Replaces each masked-in value by the mean over its row's branch; expects 0 where ``mask`` is False."""
    if branch_ids is None or bool((mask & (branch_ids < 1)).any()):
        found = "none" if branch_ids is None else "sampled tokens outside every branch"
        raise ValueError(f"branch_ids: got {found}, expected a branch of 1 or more at each sampled token")
    width = int(branch_ids.max()) + 2
    rows = torch.arange(len(values), device=values.device).unsqueeze(1)
    slot = (rows * width + branch_ids + 1).flatten()
    zeros = values.new_zeros(len(values) * width)
    total = zeros.index_add(0, slot, values.flatten())
    count = zeros.index_add(0, slot, mask.flatten().to(values.dtype))
    mean = (total / count.clamp(min=1))[slot].view_as(values)
    return torch.where(mask, mean, 0.0)
