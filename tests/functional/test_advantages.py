from __future__ import annotations

import math
from dataclasses import astuple
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from atgrpo.functional.advantages import (
    GroupStats,
    group_ids_from_keys,
    group_relative_advantages,
    group_stats,
    leave_one_out_advantages,
)

NAN = math.nan
HALF_ROOT_3 = 0.8660254  # [1, 0, 1, 0]: mean 1/2, sum of squares 1, std sqrt(1/3)


def advantages(rewards: list[float], groups: list[int], *, scale: bool = True, eps: float = 0.0) -> Tensor:
    rows = torch.tensor(rewards, dtype=torch.float32), torch.tensor(groups, dtype=torch.long)
    return group_relative_advantages(*rows, scale_by_std=scale, eps=eps)


def assert_near(got: Tensor, expected: list[float], atol: float = 1e-6) -> None:
    torch.testing.assert_close(got, torch.tensor(expected, dtype=got.dtype), atol=atol, rtol=0, equal_nan=True)


@st.composite
def grouped_rewards(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    rows = draw(st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(0, 4)), min_size=1, max_size=24))
    rewards, groups = zip(*rows, strict=True)
    return torch.tensor(rewards), torch.tensor(groups)


# The six samples of the public report on pooled turns: (rollout, turn, reward).
REPORT = [(1, 0, 1.0), (1, 1, 1.0), (2, 0, 0.0), (3, 0, 1.0), (3, 1, 1.0), (4, 0, 0.0)]


def test_report_pooled_punishes_the_direct_answer_harder_than_it_rewards_the_tool():
    got = advantages([reward for *_, reward in REPORT], [0] * 6)
    # mean 2/3, sum of squares 4/9 + 8/9, std sqrt(4/15): (1/3) / .5164 and (-2/3) / .5164
    assert_near(got, [0.6454972, 0.6454972, -1.2909944, 0.6454972, 0.6454972, -1.2909944])


def test_report_by_turn():
    groups = group_ids_from_keys([turn for _, turn, _ in REPORT])
    got = advantages([reward for *_, reward in REPORT], groups.tolist())
    assert_near(got, [HALF_ROOT_3, 0.0, -HALF_ROOT_3, HALF_ROOT_3, 0.0, -HALF_ROOT_3])


@pytest.mark.parametrize("returns", [[1.0, 0.0, 1.0, 0.0], [2.0, 0.0, 2.0, 0.0]], ids=["outcome", "sum of turns"])
def test_report_one_vote_per_trajectory(returns: list[float]):
    of_turn = advantages(returns, [0] * 4)[torch.tensor([rollout - 1 for rollout, *_ in REPORT])]
    assert_near(of_turn, [HALF_ROOT_3, HALF_ROOT_3, -HALF_ROOT_3, HALF_ROOT_3, HALF_ROOT_3, -HALF_ROOT_3])


def test_report_one_group_per_trajectory_is_too_fine_to_learn_anything():
    groups = group_ids_from_keys([rollout for rollout, *_ in REPORT])
    assert advantages([reward for *_, reward in REPORT], groups.tolist()).tolist() == [0.0] * 6


def test_baseline_is_the_groups_own_not_the_batch_mean():
    assert_near(advantages([1, 0, 10, 12], [0, 0, 1, 1], scale=False), [0.5, -0.5, -1.0, 1.0])


def test_interleaved_rows_keep_their_group():
    assert_near(advantages([1, 10, 0, 12], [7, -3, 7, -3], scale=False), [0.5, -1.0, -0.5, 1.0])


def test_roles_are_not_pooled_when_the_key_tells_them_apart():
    keys = [("solver", 0)] * 4 + [("judge", 0)] * 4
    got = advantages([1, 0, 1, 0, 10, 10, 10, 6], group_ids_from_keys(keys).tolist())
    assert_near(got, [HALF_ROOT_3, -HALF_ROOT_3] * 2 + [0.5, 0.5, 0.5, -1.5])


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("rewards", [[5.0], [0.1] * 3, [1e8 + 8] * 7, [0.0, 0.0]])
def test_a_group_of_one_or_of_equal_rewards_is_exactly_zero(rewards: list[float], scale: bool):
    assert advantages(rewards, [0] * len(rewards), scale=scale).tolist() == [0.0] * len(rewards)
    loo = leave_one_out_advantages(torch.tensor(rewards), torch.zeros(len(rewards), dtype=torch.long))
    assert loo.tolist() == [0.0] * len(rewards)


def test_eps_is_added_to_the_std_and_not_under_the_root():
    rewards = torch.tensor([1, 1.00001], dtype=torch.float64)
    got = group_relative_advantages(rewards, torch.zeros(2, dtype=torch.long), scale_by_std=True, eps=1e-6)
    # half the distance 5e-6, std 1e-5 / sqrt 2 = 7.0711e-6, plus 1e-6
    assert_near(got, [-0.6194968, 0.6194968], atol=1e-6)


def test_every_member_counts_in_the_baseline():
    assert_near(advantages([1, 0, 0, 0], [0] * 4), [1.5, -0.5, -0.5, -0.5])


def test_ranks_that_own_whole_groups_need_no_communication():
    rewards, groups = [1.0, 0, 0, 0, 3, 4, 4, 9], [0] * 4 + [1] * 4
    together = advantages(rewards, groups)
    apart = torch.cat([advantages(rewards[:4], groups[:4]), advantages(rewards[4:], groups[4:])])
    assert together.tolist() == apart.tolist()


def test_a_long_trajectory_has_one_vote_only_among_trajectories():
    by_trajectory = advantages([1, 0], [0, 0], scale=False)
    by_turn = advantages([1.0] + [0.0] * 9, [0] * 10, scale=False)
    assert by_trajectory.tolist() == [0.5, -0.5]
    assert_near(by_turn, [0.9] + [-0.1] * 9)


def test_a_missing_reward_is_in_no_baseline_and_stays_out_of_the_loss():
    assert_near(advantages([1, 1, NAN, 1], [0] * 4), [0.0, 0.0, NAN, 0.0])
    assert_near(advantages([2, 0, NAN, NAN], [0] * 4, scale=False), [1.0, -1.0, NAN, NAN])


def test_an_absent_reward_is_no_better_than_a_bad_one():
    assert_near(advantages([NAN, -1, -1, NAN], [0] * 4), [NAN, 0.0, 0.0, NAN])


def test_invalid_rows_are_excluded_whatever_their_reward_is():
    rewards, valid = torch.tensor([1.0, 0.0, 100.0, torch.inf]), torch.tensor([True, True, False, False])
    groups = torch.zeros(4, dtype=torch.long)
    got = group_relative_advantages(rewards, groups, scale_by_std=False, eps=0.0, valid=valid)
    assert_near(got, [0.5, -0.5, NAN, NAN])
    assert_near(leave_one_out_advantages(rewards, groups, valid=valid), [1.0, -1.0, NAN, NAN])


def test_a_group_without_any_valid_member_is_all_nan():
    assert_near(advantages([NAN, NAN, 1, 0], [0, 0, 1, 1], scale=False), [NAN, NAN, 0.5, -0.5])


def test_large_rewards_do_not_swallow_small_ones():
    assert advantages([1e8, 1, -1e8, 3], [0] * 4, scale=False).tolist()[1::2] == [0.0, 2.0]


def test_leave_one_out_by_hand():
    got = leave_one_out_advantages(torch.tensor([1.0, 0, 0, 0, 10, 4]), torch.tensor([0, 0, 0, 0, 1, 1]))
    assert_near(got, [1.0, -1 / 3, -1 / 3, -1 / 3, 6.0, -6.0])


def test_group_ids_are_dense_in_first_seen_order():
    keys = [(2, "a"), (0, "b"), (2, "a"), (2, "b"), (0, "b")]
    assert group_ids_from_keys(keys).tolist() == [0, 1, 0, 2, 1]
    assert group_ids_from_keys([]).dtype == torch.long


def test_one_agent_and_one_turn_make_at_grpo_the_same_as_grpo():
    rewards = [1.0, 0, 0, 1, 3, 4, 5, 5]
    at_grpo = group_ids_from_keys([(tree, "solver", 0) for tree in (0, 1) for _ in range(4)])
    grpo = group_ids_from_keys([tree for tree in (0, 1) for _ in range(4)])
    assert advantages(rewards, at_grpo.tolist()).tolist() == advantages(rewards, grpo.tolist()).tolist()


def test_group_stats_by_hand():
    rewards = torch.tensor([1.0, 0, 1, 0, 2, 2, 7, NAN, NAN])
    groups = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3])
    got = group_stats(rewards, groups)
    # sizes 4, 2, 1; group 3 has nobody; std sqrt(1/3) and 0 over the two groups that have several members
    expected = GroupStats(3, mean_size=7 / 3, share_singleton=1 / 3, share_zero_variance=0.5, mean_std=0.28867513)
    assert astuple(got) == pytest.approx(astuple(expected))


def test_group_stats_without_groups_are_nan_and_not_zero():
    got = group_stats(torch.tensor([1.0, NAN]), torch.tensor([0, 1]), torch.tensor([False, True]))
    assert got.n_groups == 0
    assert all(map(math.isnan, [got.mean_size, got.share_singleton, got.share_zero_variance, got.mean_std]))


def test_no_rows_give_no_advantages():
    assert advantages([], []).tolist() == []
    assert leave_one_out_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.long)).tolist() == []


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_ids": torch.tensor([0, 0])}, r"got \(2,\), expected \(3,\)"),
        ({"valid": torch.tensor([True])}, r"shape of valid: got \(1,\)"),
        ({"valid": torch.ones(3)}, "expected torch\\.bool"),
        ({"rewards": torch.tensor([1, 0, 1])}, "got torch\\.int64"),
        ({"group_ids": torch.zeros(3)}, "expected one dimension, floats and integers"),
        ({"rewards": torch.tensor([1.0, torch.inf, 0.0])}, "infinite"),
        ({"eps": -1e-6}, "eps: got -1e-06"),
        ({"eps": NAN}, "eps: got nan"),
    ],
)
def test_misuse_is_refused(change: dict[str, Any], message: str):
    fitting = {
        "rewards": torch.zeros(3),
        "group_ids": torch.zeros(3, dtype=torch.long),
        "scale_by_std": True,
        "eps": 0.0,
    }
    with pytest.raises(ValueError, match=message):
        group_relative_advantages(**(fitting | change))


@settings(max_examples=60, deadline=None)
@given(grouped_rewards(), st.booleans())
def test_advantages_of_a_group_sum_to_zero(rows: tuple[Tensor, Tensor], scale: bool):
    rewards, groups = rows
    for got in (
        group_relative_advantages(rewards, groups, scale_by_std=scale, eps=1e-6),
        leave_one_out_advantages(rewards, groups),
    ):
        sums = torch.zeros(5, dtype=torch.float64).index_add(0, groups, got.double())
        assert sums.abs().max() < 1e-4


@settings(max_examples=60, deadline=None)
@given(grouped_rewards(), st.randoms(use_true_random=False))
def test_reordering_the_rows_reorders_the_advantages_and_nothing_else(rows: tuple[Tensor, Tensor], random: Any):
    rewards, groups = rows
    order = list(range(len(rewards)))
    random.shuffle(order)
    before = group_relative_advantages(rewards, groups, scale_by_std=True, eps=1e-6)
    after = group_relative_advantages(rewards[order], groups[order], scale_by_std=True, eps=1e-6)
    torch.testing.assert_close(after, before[order], atol=1e-6, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(grouped_rewards(), st.lists(st.integers(-8, 8), min_size=5, max_size=5), st.booleans())
def test_a_constant_added_to_a_group_changes_nothing(rows: tuple[Tensor, Tensor], shifts: list[int], scale: bool):
    rewards, groups = rows[0].double(), rows[1]
    shifted = rewards + torch.tensor(shifts, dtype=torch.float64)[groups]
    before = group_relative_advantages(rewards, groups, scale_by_std=scale, eps=1e-6)
    after = group_relative_advantages(shifted, groups, scale_by_std=scale, eps=1e-6)
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)


@settings(max_examples=40, deadline=None)
@given(grouped_rewards())
def test_without_eps_a_group_has_unit_std_and_the_scale_of_its_rewards_does_not_matter(rows: tuple[Tensor, Tensor]):
    rewards, groups = rows[0].double().round(decimals=2), rows[1]
    got = group_relative_advantages(rewards, groups, scale_by_std=True, eps=0.0)
    scaled = group_relative_advantages(rewards * 4, groups, scale_by_std=True, eps=0.0)
    torch.testing.assert_close(scaled, got, atol=1e-9, rtol=0)
    for group in groups.unique():
        members = got[groups == group]
        flat = len(rewards[groups == group].unique()) == 1
        assert members.abs().max() == 0 if flat else members.std().item() == pytest.approx(1)
