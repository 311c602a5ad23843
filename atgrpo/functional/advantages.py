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


def role_baseline_advantages(
    returns: Float[Tensor, " N"], roles: Int[Tensor, " N"], baselines: Float[Tensor, " R"], *, decay: float
) -> tuple[Float[Tensor, " N"], Float[Tensor, " R"]]:
    """Each return against its role's moving average: ``A = R - b``, then ``b <- decay * b + (1 - decay) * R``.

    Goes through the rows in order: a row is scored by the baseline that the rows before it left. ``roles`` are places
    in ``baselines``. A NaN return gets NaN and moves nothing. Role-conditioned advantages, arXiv:2506.24119.

    Returns:
        The advantages and the baselines after the last row.

    Raises:
        ValueError: shapes do not fit, ``decay`` is not in [0, 1).
    """
    require_same_shape(returns=returns, roles=roles)
    if not 0 <= decay < 1:
        raise ValueError(f"decay: got {decay}, expected at least 0 and less than 1")
    advantages, moved = torch.full_like(returns, torch.nan), baselines.clone()
    for i in (~returns.isnan()).nonzero().flatten():
        role = roles[i]
        advantages[i] = returns[i] - moved[role]
        moved[role] = decay * moved[role] + (1 - decay) * returns[i]
    return advantages, moved


def leaf_means(values: Float[Tensor, " N"], parents: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """For each row of a forest the mean value of the leaves at or below it.

    ``parents`` are row numbers, -1 for a root. Values of rows that are not leaves are not looked at. A leaf that is NaN
    counts nowhere; a row with no other leaf below it is NaN. The mean of equal values is exactly that value.

    Raises:
        ValueError: shapes do not fit, a parent is no row, rows are their own ancestors.
    """
    require_same_shape(values=values, parents=parents)
    n = len(values)
    if bool(((parents < -1) | (parents >= n)).any()):
        raise ValueError(f"parents: got a number outside of -1 to {n - 1}, expected a row, or -1 for a root")
    above = parents
    for _ in range(n):
        if bool((above < 0).all()):
            break
        above = torch.where(above < 0, above, parents[above])
    if bool((above >= 0).any()):
        raise ValueError("parents: got rows that are their own ancestors, expected a forest")
    row = (leaves(parents) & ~values.isnan()).nonzero().flatten()
    value = values[row].double()
    total, count = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    highest, lowest = torch.full_like(total, -torch.inf), torch.full_like(total, torch.inf)
    while len(row):
        total.index_add_(0, row, value)
        count.index_add_(0, row, torch.ones_like(value))
        highest.scatter_reduce_(0, row, value, "amax")
        lowest.scatter_reduce_(0, row, value, "amin")
        above = parents[row]
        row, value = above[above >= 0], value[above >= 0]
    means = (total / count).clamp(lowest, highest)
    return torch.where(count > 0, means, torch.nan).to(values.dtype)


def leaves(parents: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    """Rows of a forest that nothing has grown from."""
    found = torch.ones(len(parents), dtype=torch.bool)
    found[parents[parents >= 0]] = False
    return found


def tree_value_advantages(
    rewards: Float[Tensor, " N"], parents: Int[Tensor, " N"], tree_ids: Int[Tensor, " N"]
) -> Float[Tensor, " N"]:
    """How much better a row's value is than its tree's and than its parent's: ``A = V - V_root + V - V_parent``.

    V is the mean reward of the leaves below (``leaf_means``). The rows without a parent hang from the root of their
    tree. A row whose own reward is missing gets NaN; what has grown from it still counts above it. All rewards of a
    tree equal: exactly 0. TreeRL, arXiv:2506.11902, without its factor for steps that are trained once per leaf.
    """
    require_same_shape(rewards=rewards, parents=parents, tree_ids=tree_ids)
    names, tree = torch.unique(tree_ids, return_inverse=True)
    root = len(rewards) + tree
    above = torch.where(parents < 0, root, parents)
    nothing = rewards.new_full((len(names),), torch.nan)
    values = leaf_means(torch.cat([rewards, nothing]), torch.cat([above, torch.full_like(names, -1)]))
    own = values[: len(rewards)]
    advantages = (own - values[root]) + (own - values[above])
    return torch.where(rewards.isnan(), torch.nan, advantages)


def tree_group_advantages(
    rewards: Float[Tensor, " N"],
    parents: Int[Tensor, " N"],
    tree_ids: Int[Tensor, " N"],
    prompt_ids: Int[Tensor, " N"],
    *,
    scale_by_std: bool,
    eps: float,
) -> Float[Tensor, " N"]:
    """A leaf against the leaves of its prompt plus against those of its tree; other rows take the mean over theirs.

    Both terms are those of ``group_relative_advantages``. A row whose own reward is missing gets NaN; what has grown
    from it still counts. Tree-GRPO, arXiv:2509.21240.
    """
    ends = torch.where(leaves(parents), rewards, torch.nan)
    of_prompt, of_tree = (
        group_relative_advantages(ends, ids, scale_by_std=scale_by_std, eps=eps) for ids in (prompt_ids, tree_ids)
    )
    return torch.where(rewards.isnan(), torch.nan, leaf_means(of_prompt + of_tree, parents))


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
