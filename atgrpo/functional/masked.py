"""Sums over the tokens that count, and the weights by which tokens add up to a step's loss."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "trajectory_mean", "constant"]
"""What one step's loss is a mean of: all tokens, sequences' or trajectories' own means, sums over a constant length."""


def require_same_shape(**tensors: Tensor | None) -> None:
    """Raises unless all tensors that are given have one shape; broadcasting is where silent misalignment comes from.

    Raises:
        ValueError: two shapes differ; both are named.
    """
    given = [(name, tuple(tensor.shape)) for name, tensor in tensors.items() if tensor is not None]
    for name, shape in given[1:]:
        if shape != given[0][1]:
            raise ValueError(f"shape of {name}: got {shape}, expected {given[0][1]} as for {given[0][0]}")


def require_mask(mask: Tensor) -> None:
    """Raises unless ``mask`` is boolean; a float mask would multiply instead of select.

    Raises:
        ValueError: another dtype.
    """
    if mask.dtype != torch.bool:
        raise ValueError(f"mask: got {mask.dtype}, expected torch.bool")


def masked_sum(values: Float[Tensor, "*S"], mask: Bool[Tensor, "*S"]) -> Float[Tensor, ""]:
    """Sum of ``values`` where ``mask``; what stands elsewhere, NaN included, reaches neither value nor gradient.

    Nothing selected gives 0 with the graph attached and zero gradients. A masked infinity that is an intermediate
    result (``exp`` of something large) still makes NaN further up: mask before the operation that overflows.
    """
    require_same_shape(values=values, mask=mask)
    require_mask(mask)
    return torch.where(mask, values, 0.0).sum()


def masked_mean(values: Float[Tensor, "*S"], mask: Bool[Tensor, "*S"]) -> Float[Tensor, ""]:
    """``sum(values[mask]) / sum(mask)``; nothing selected gives 0 with the graph attached, as in ``masked_sum``."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def aggregation_weights(
    lengths: Int[Tensor, " N"], mode: Aggregation, *, constant_length: int | None = None
) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
    """Weight ``w_n`` of each token of sequence n, and what the sequence adds to the step's denominator, ``d_n``.

    ``loss = sum_n sum_t w_n * loss_nt / sum_n d_n``, where both sums run over the whole optimiser step:

    - ``token_mean``: w = 1, d = length.
    - ``sequence_mean``: w = 1 / length, d = 1.
    - ``trajectory_mean``: the same, where sequence n counts as its share of its trajectory's tokens: both are times
      length / (length of the trajectory), which the caller knows, so that all d of a trajectory add up to 1.
    - ``constant``: w = 1, d = ``constant_length`` (Dr. GRPO, arXiv:2503.20783), free of any bias by length.

    A sequence of length 0 has w = d = 0 in every mode. Denominators are integers, so that their sum is the same in
    any order and over any number of ranks.

    Raises:
        ValueError: unknown mode, negative length, ``constant_length`` missing or given to another mode.
    """
    if lengths.is_floating_point() or bool((lengths < 0).any()):
        raise ValueError(f"lengths: got {lengths.tolist()}, expected integers of 0 or more")
    if mode != "constant" and constant_length is not None:
        raise ValueError(f"constant_length: got {constant_length} with mode {mode!r}, expected None")
    present = lengths > 0
    if mode == "token_mean":
        return present.float(), lengths
    if mode in ("sequence_mean", "trajectory_mean"):
        return present / lengths.clamp(min=1), present.long()
    if mode == "constant":
        if constant_length is None or constant_length < 1:
            raise ValueError(f"constant_length: got {constant_length}, expected 1 or more")
        return present.float(), present.long() * constant_length
    raise ValueError(f"mode: got {mode!r}, expected token_mean, sequence_mean, trajectory_mean or constant")
