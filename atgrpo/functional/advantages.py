"""Advantages of samples against the other samples of their group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from atgrpo.functional.masked import require_mask, require_same_shape


@dataclass(frozen=True, slots=True)
class GroupStats:
    """How informative the groups of an iteration were. Members without a valid reward do not count anywhere."""

    n_groups: int
    """Groups with at least one valid member."""
    mean_size: float
    """Valid members per group; NaN without groups."""
    share_singleton: float
    """Share of the groups that have one valid member; NaN without groups."""
    share_zero_variance: float
    """Share, among groups of two or more, of those whose rewards are all equal; NaN if there are none."""
    mean_std: float
    """Mean of the rewards' std (ddof=1) over groups of two or more, zeros included; NaN if there are none."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """Moments of every group, in float64 so that the order of the rows does not show in the result."""

    index: Int[Tensor, " N"]
    kept: Bool[Tensor, " N"]
    count: Int[Tensor, " G"]
    mean: Float[Tensor, " G"]
    std: Float[Tensor, " G"]
    flat: Bool[Tensor, " G"]


def group_ids_from_keys(keys: Sequence[Hashable]) -> Int[Tensor, " N"]:
    """Dense group numbers, 0 for the first key seen, 1 for the next new one, and so on."""
    seen: dict[Hashable, int] = {}
    return torch.tensor([seen.setdefault(key, len(seen)) for key in keys], dtype=torch.long)


def group_relative_advantages(
    rewards: Float[Tensor, " N"],
    group_ids: Int[Tensor, " N"],
    *,
    scale_by_std: bool,
    eps: float,
    valid: Bool[Tensor, " N"] | None = None,
) -> Float[Tensor, " N"]:
    """Each reward against its group: ``A = (r - mean) / (std + eps)``, or ``r - mean`` without ``scale_by_std``.

    ``std`` divides by n - 1 and ``eps`` is added to it, outside the root. A group of one, or whose rewards are all
    equal, gets exactly 0. A row that is NaN or not ``valid`` counts in no baseline and gets NaN, so that it cannot be
    trained on by mistake. Rows may come in any order. GRPO, arXiv:2402.03300; mean only: Dr. GRPO, arXiv:2503.20783.

    Raises:
        ValueError: shapes or dtypes do not fit, an infinite reward, a negative ``eps``.
    """
    if not eps >= 0:
        raise ValueError(f"eps: got {eps}, expected 0 or more")
    groups = _moments(rewards, group_ids, valid)
    scale = 1 / (groups.std + eps) if scale_by_std else torch.ones_like(groups.std)
    return _centred(rewards, groups, scale)


def leave_one_out_advantages(
    rewards: Float[Tensor, " N"], group_ids: Int[Tensor, " N"], *, valid: Bool[Tensor, " N"] | None = None
) -> Float[Tensor, " N"]:
    """Each reward minus the mean of the others in its group: ``A = r_i - sum_{j != i} r_j / (n - 1)``.

    Edge cases as in ``group_relative_advantages``. RLOO, arXiv:2402.14740.
    """
    groups = _moments(rewards, group_ids, valid)
    # The same number as r - (sum - r) / (n - 1), without the cancellation.
    return _centred(rewards, groups, groups.count.double() / (groups.count - 1).clamp(min=1))


def group_stats(
    rewards: Float[Tensor, " N"], group_ids: Int[Tensor, " N"], valid: Bool[Tensor, " N"] | None = None
) -> GroupStats:
    """Sizes and spread of the groups; what is valid and what is equal is decided as for the advantages."""
    groups = _moments(rewards, group_ids, valid)
    present, several = groups.count > 0, groups.count > 1
    return GroupStats(
        n_groups=int(present.sum()),
        mean_size=groups.count[present].double().mean().item(),
        share_singleton=(groups.count[present] == 1).double().mean().item(),
        share_zero_variance=groups.flat[several].double().mean().item(),
        mean_std=groups.std[several].mean().item(),
    )


def _moments(rewards: Float[Tensor, " N"], group_ids: Int[Tensor, " N"], valid: Bool[Tensor, " N"] | None) -> _Groups:
    require_same_shape(rewards=rewards, group_ids=group_ids, valid=valid)
    if rewards.dim() != 1 or not rewards.is_floating_point() or group_ids.is_floating_point():
        found = f"{rewards.dtype} of shape {tuple(rewards.shape)} and {group_ids.dtype}"
        raise ValueError(f"rewards and group_ids: got {found}, expected one dimension, floats and integers")
    kept = ~rewards.isnan()
    if valid is not None:
        require_mask(valid)
        kept &= valid
    values = rewards[kept].double()
    if bool(values.isinf().any()):
        raise ValueError("rewards: got an infinite value, expected finite ones, NaN where missing")
    names, index = torch.unique(group_ids, return_inverse=True)
    member = index[kept]
    zeros = values.new_zeros(len(names))
    count = torch.bincount(member, minlength=len(names))
    mean = zeros.index_add(0, member, values) / count.clamp(min=1)
    squares = zeros.index_add(0, member, (values - mean[member]) ** 2)
    # Equality is decided on the rewards themselves: a rounded mean leaves a tiny std, which 1 / std would blow up.
    highest = torch.full_like(zeros, -torch.inf).scatter_reduce(0, member, values, "amax")
    lowest = torch.full_like(zeros, torch.inf).scatter_reduce(0, member, values, "amin")
    flat = highest <= lowest
    std = torch.where(flat, 0.0, (squares / (count - 1).clamp(min=1)).sqrt())
    return _Groups(index, kept, count, mean, std, flat | (count == 0))


def _centred(rewards: Float[Tensor, " N"], groups: _Groups, scale: Float[Tensor, " G"]) -> Float[Tensor, " N"]:
    of = groups.index
    advantages = torch.where(groups.flat[of], 0.0, (rewards.double() - groups.mean[of]) * scale[of])
    return torch.where(groups.kept, advantages, torch.nan).to(rewards.dtype)
