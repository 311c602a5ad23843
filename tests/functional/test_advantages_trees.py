"""Advantages of the steps of trees, and those against a moving baseline."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.functional.advantages import (
    leaf_means,
    leaves,
    role_baseline_advantages,
    tree_group_advantages,
    tree_value_advantages,
)

NAN = math.nan
#      0        1
#    2   3    4   5
#       6 7
PARENTS = torch.tensor([-1, -1, 0, 0, 1, 1, 3, 3])
REWARDS = torch.tensor([9.0, 9.0, 1.0, 9.0, 4.0, 6.0, 2.0, 6.0])


def test_leaf_means_by_hand() -> None:
    assert leaves(PARENTS).tolist() == [False, False, True, False, True, True, True, True]
    assert leaf_means(REWARDS, PARENTS).tolist() == [3.0, 5.0, 1.0, 4.0, 4.0, 6.0, 2.0, 6.0]


def test_a_missing_leaf_counts_nowhere() -> None:
    lost = REWARDS.clone()
    lost[[2, 4, 5]] = NAN
    expected = torch.tensor([4.0, NAN, NAN, 4.0, NAN, NAN, 2.0, 6.0])
    torch.testing.assert_close(leaf_means(lost, PARENTS), expected, equal_nan=True)


def test_value_advantages_by_hand() -> None:
    one_tree = torch.zeros(8, dtype=torch.long)  # root: (1 + 4 + 6 + 2 + 6) / 5 = 3.8
    found = tree_value_advantages(REWARDS.double(), PARENTS, one_tree)
    values = [3.0, 5.0, 1.0, 4.0, 4.0, 6.0, 2.0, 6.0]
    above = [3.8, 3.8, 3.0, 3.0, 5.0, 5.0, 4.0, 4.0]
    expected = [(v - 3.8) + (v - a) for v, a in zip(values, above, strict=True)]
    assert found.tolist() == pytest.approx(expected)
    two_trees = torch.tensor([7, -2, 7, 7, -2, -2, 7, 7])
    found = tree_value_advantages(REWARDS, PARENTS, two_trees)
    assert found.tolist() == [0.0, 0.0, -4.0, 2.0, -2.0, 2.0, -3.0, 5.0]


def test_group_advantages_by_hand() -> None:
    trees, prompts = torch.tensor([0, 1, 0, 0, 1, 1, 0, 0]), torch.zeros(8, dtype=torch.long)
    found = tree_group_advantages(REWARDS.double(), PARENTS, trees, prompts, scale_by_std=False, eps=0.0)
    # Leaves 1, 4, 6, 2, 6: mean 3.8; of tree 0: 1, 2, 6, mean 3; of tree 1: 4, 6, mean 5.
    leaf = {2: -2.8 - 2, 4: 0.2 - 1, 5: 2.2 + 1, 6: -1.8 - 1, 7: 2.2 + 3}
    means = {0: (leaf[2] + leaf[6] + leaf[7]) / 3, 1: (leaf[4] + leaf[5]) / 2, 3: (leaf[6] + leaf[7]) / 2}
    assert found.tolist() == pytest.approx([(leaf | means)[row] for row in range(8)])


def test_a_row_without_a_reward_is_not_scored_and_what_grew_from_it_is() -> None:
    rewards = REWARDS.clone()
    rewards[3] = NAN
    trees = torch.tensor([0, 1, 0, 0, 1, 1, 0, 0])
    found = tree_value_advantages(rewards, PARENTS, trees)
    assert math.isnan(found[3]) and found[[0, 2, 6, 7]].tolist() == [0.0, -4.0, -3.0, 5.0]
    found = tree_group_advantages(rewards, PARENTS, trees, trees, scale_by_std=False, eps=0.0)
    assert math.isnan(found[3]) and found[[6, 7]].tolist() == [-2.0, 6.0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-10, 10, width=32), st.integers(0, 100)), min_size=1, max_size=20), st.randoms())
def test_rows_of_a_forest_come_in_any_order(rows: list[tuple[float, int]], random: Any) -> None:
    parents = torch.tensor([place % (i + 1) - 1 for i, (_, place) in enumerate(rows)])
    values = torch.tensor([value for value, _ in rows], dtype=torch.float64)
    order = torch.tensor(random.sample(range(len(rows)), len(rows)))
    new_row = torch.empty_like(order)
    new_row[order] = torch.arange(len(rows))
    moved = torch.where(parents[order] < 0, -1, new_row[parents[order]])
    torch.testing.assert_close(leaf_means(values[order], moved), leaf_means(values, parents)[order], atol=1e-9, rtol=0)


@settings(max_examples=40, deadline=None)
@given(st.floats(-1e6, 1e6), st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_equal_rewards_are_exactly_zero_in_any_tree(reward: float, places: list[int]) -> None:
    parents = torch.tensor([place % (i + 1) - 1 for i, place in enumerate(places)])
    rewards, tree = torch.full((len(places),), reward, dtype=torch.float64), torch.zeros(len(places), dtype=torch.long)
    assert tree_value_advantages(rewards, parents, tree).unique().tolist() == [0.0]
    found = tree_group_advantages(rewards, parents, tree, tree, scale_by_std=True, eps=0.0)
    assert found.unique().tolist() == [0.0]


@pytest.mark.parametrize("parents", [[1, 0, -1], [0, -1, -1], [-1, 2, 1], [-1, 3, 0], [-2, 0, 0]])
def test_what_is_no_forest_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="parents: got"):
        leaf_means(torch.zeros(3), torch.tensor(parents))


def test_no_rows_give_no_advantages() -> None:
    none, ids = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    assert leaf_means(none, ids).tolist() == []
    assert tree_value_advantages(none, ids, ids).tolist() == []
    assert tree_group_advantages(none, ids, ids, ids, scale_by_std=True, eps=0.0).tolist() == []


def test_a_moving_baseline_by_hand() -> None:
    returns, roles = torch.tensor([8.0, NAN, 4.0, 6.0]), torch.tensor([1, 1, 1, 0])
    found, moved = role_baseline_advantages(returns, roles, torch.tensor([2.0, 0.0]), decay=0.75)
    # Role 1: b = 0, then 2 after the 8, then 2.5; role 0: b = 2, then 3.
    torch.testing.assert_close(found, torch.tensor([8.0, NAN, 2.0, 4.0]), equal_nan=True)
    assert moved.tolist() == [3.0, 2.5]


def test_a_moving_baseline_leaves_what_it_was_given_alone() -> None:
    given_ = torch.zeros(1)
    role_baseline_advantages(torch.ones(3), torch.zeros(3, dtype=torch.long), given_, decay=0.5)
    assert given_.tolist() == [0.0]


@pytest.mark.parametrize("decay", [1.0, -0.1, NAN])
def test_a_decay_that_never_moves_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="decay: got"):
        role_baseline_advantages(torch.zeros(1), torch.zeros(1, dtype=torch.long), torch.zeros(1), decay=decay)
