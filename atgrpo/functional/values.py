"""The loss of a value function, clipped like the policy's."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import huber_loss

from atgrpo.functional.masked import require_same_shape


def clipped_value_loss(
    values: Float[Tensor, "*B"],
    old_values: Float[Tensor, "*B"],
    targets: Float[Tensor, "*B"],
    *,
    clip: float | None,
    huber: float | None,
) -> Float[Tensor, "*B"]:
    """``max(l(V - R), l(clip(V, V_old ± clip) - R))`` for each value; ``l`` is half the square, or Huber's.

    The larger of both, so that a value which has gone further than ``clip`` has no gradient, unless it has gone away
    from its target. ``clip`` None: ``l(V - R)``. ``huber`` is where the loss turns linear; None: nowhere. As in
    MAPPO (arXiv:2103.01955).

    Raises:
        ValueError: shapes differ, or ``clip`` or ``huber`` is not positive.
    """
    require_same_shape(values=values, old_values=old_values, targets=targets)
    for name, number in (("clip", clip), ("huber", huber)):
        if number is not None and not number > 0:
            raise ValueError(f"{name}: got {number}, expected more than 0")
    old, target = old_values.detach(), targets.detach()
    loss = _loss(values, target, huber)
    if clip is None:
        return loss
    near = old + (values - old).clamp(-clip, clip)
    return torch.maximum(loss, _loss(near, target, huber))


def _loss(values: Tensor, targets: Tensor, huber: float | None) -> Tensor:
    if huber is None:
        return 0.5 * (values - targets) ** 2
    return huber_loss(values, targets, reduction="none", delta=huber)
