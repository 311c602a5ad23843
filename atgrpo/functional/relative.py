"""Group-relative weights: how much an agent's own advantage counts, given the team's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

Form = Literal["ones", "linear", "clip", "sigmoid", "softmax"]
Guard = Literal["floor", "one"]


@dataclass(frozen=True, slots=True)
class RelativeWeights:
    """Weights and what they were made of; all detached."""

    weights: Float[Tensor, "*B A"]
    relative: Float[Tensor, "*B A"]
    """Guarded and limited."""
    sums: Float[Tensor, "*B"]
    """Over the agents, before the guard."""


def relative_weights(
    advantages: Float[Tensor, "*B A"],
    group_advantages: Float[Tensor, "*B"],
    *,
    form: Form,
    guard: Guard = "floor",
    eps: float = 0.1,
    limit: float | None = 5.0,
) -> RelativeWeights:
    """``w_i = f(A_i * A_group / S)`` with ``S = sum_j A_j``, over the last dimension of ``advantages``.

    ``x`` being the relative advantage within ``±limit`` (None: unbounded), f(x) is 1 (``ones``), x (``linear``),
    x + 1 within 0 and 2 (``clip``), 2 / (1 + exp(-x)) (``sigmoid``) or the agents' softmax times their number
    (``softmax``, whose weights have the mean 1 over the agents). All but ``linear`` are 1 where all x are 0.

    The sum crosses zero. Where ``|S| < eps`` the guard ``floor`` divides by ``±eps`` in the sign of S, + at 0, and
    ``one`` sets every agent's weight to 1 there, whatever the form. ``linear`` makes ``w_i * A_i`` of the sign of
    ``A_group / S``: an agent's own sign no longer counts.

    Raises:
        ValueError: shapes do not fit, an unknown form or guard, or ``eps`` or ``limit`` not positive.
    """
    if advantages.shape[:-1] != group_advantages.shape:
        raise ValueError(
            f"group_advantages: got {tuple(group_advantages.shape)}, expected {tuple(advantages.shape[:-1])}"
        )
    for name, value, known in (("form", form, get_args(Form)), ("guard", guard, get_args(Guard))):
        if value not in known:
            raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(known)}")
    for name, number in (("eps", eps), ("limit", limit)):
        if number is not None and not number > 0:
            raise ValueError(f"{name}: got {number}, expected more than 0")
    own = advantages.detach()
    sums = own.sum(-1)
    small = (sums.abs() < eps).unsqueeze(-1)
    divisor = torch.where(sums < 0, -1.0, 1.0) * sums.abs().clamp(min=eps)
    relative = own * (group_advantages.detach() / divisor).unsqueeze(-1)
    if limit is not None:
        relative = relative.clamp(-limit, limit)
    weights = _apply(form, relative)
    if guard == "one":
        weights = torch.where(small, 1.0, weights)
    return RelativeWeights(weights, relative, sums)


def agreement_weights(
    advantages: Float[Tensor, "*B A"], group_advantages: Float[Tensor, "*B"], *, strength: float = 1.0
) -> Float[Tensor, "*B A"]:
    """``w_i = clip(1 + strength * sign(A_i) * A_group, 0, 2)``: more where agent and team agree, less where not.

    Within the bounds ``w_i * A_i`` is ``A_i + strength * |A_i| * A_group``: the team's advantage, added where the step
    mattered to the agent. Unlike ``relative_weights`` it divides by nothing, keeps the agent's sign, and counts bad
    luck as much as good.

    Raises:
        ValueError: shapes do not fit, or ``strength`` is negative.
    """
    if advantages.shape[:-1] != group_advantages.shape:
        raise ValueError(
            f"group_advantages: got {tuple(group_advantages.shape)}, expected {tuple(advantages.shape[:-1])}"
        )
    if not strength >= 0:
        raise ValueError(f"strength: got {strength}, expected 0 or more")
    return (1 + strength * advantages.detach().sign() * group_advantages.detach().unsqueeze(-1)).clamp(0, 2)


def _apply(form: Form, relative: Float[Tensor, "*B A"]) -> Float[Tensor, "*B A"]:
    if form == "ones":
        return torch.ones_like(relative)
    if form == "linear":
        return relative
    if form == "clip":
        return (1 + relative).clamp(0, 2)
    if form == "sigmoid":
        return 2 * torch.sigmoid(relative)
    return relative.shape[-1] * torch.softmax(relative, -1)
