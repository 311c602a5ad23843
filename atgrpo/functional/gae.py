"""Generalised advantage estimation for episodes that end by success, by the time limit, or not at all."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atgrpo.functional.masked import require_same_shape


def generalized_advantages(
    rewards: Float[Tensor, "*S"],
    values: Float[Tensor, "*S"],
    next_values: Float[Tensor, "*S"],
    terminated: Bool[Tensor, "*S"],
    ended: Bool[Tensor, "*S"],
    *,
    gamma: float,
    lam: float,
) -> Float[Tensor, "*S"]:
    """``A_t = delta_t + gamma * lam * A_{t+1}`` with ``delta_t = r_t + gamma * V(s_{t+1}) - V(s_t)``.

    Time is the first dimension. ``next_values`` are those of the state that a step led to, before anything was reset.
    ``V(s_{t+1})`` is 0 where the episode was ``terminated``; at a time limit it would have gone on, so its value counts
    (arXiv:1712.00378). ``A_{t+1}`` is 0 where the episode ``ended`` for either reason, and behind the last row, where
    ``next_values`` alone stand for what follows. The value function's targets are ``A + V``. GAE: arXiv:1506.02438.

    Raises:
        ValueError: shapes differ, a discount is out of range, or a step is terminated and not ended.
    """
    require_same_shape(rewards=rewards, values=values, next_values=next_values, terminated=terminated, ended=ended)
    for name, discount in (("gamma", gamma), ("lam", lam)):
        if not 0 <= discount <= 1:
            raise ValueError(f"{name}: got {discount}, expected 0 to 1")
    if bool((terminated & ~ended).any()):
        raise ValueError("ended: got False at a terminated step, expected True")
    deltas = rewards + gamma * next_values.masked_fill(terminated, 0.0) - values
    carried = (~ended).to(deltas.dtype) * (gamma * lam)
    advantages = torch.empty_like(deltas)
    following = torch.zeros_like(deltas[:1]).sum(0)
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + carried[t] * following
        advantages[t] = following
    return advantages
