from __future__ import annotations

import math

import pytest

from atgrpo.training.callbacks.tree_grpo import TreeGRPO
from tests.training.callbacks.estimators import advantages, node, of_sample, score, small_tree

MEAN_ONLY = TreeGRPO(scale_by_std=False)
OTHER = node("a", [6.0, 8.0], kept=0, tree=1)


def test_a_rollout_against_its_prompts_and_its_trees() -> None:
    # Leaves 0, 4, 2 (mean 2) and 6, 8 (mean 7), all: mean 4.
    turns = score(MEAN_ONLY, *of_sample("s", [*small_tree(), *OTHER]))
    assert [turn.advantage for turn in turns] == [-4 - 2, (2 - 2) / 2, 0 + 2, -2 + 0, 2 - 1, 4 + 1]
    assert [turn.group for turn in turns] == [0] * 6


def test_each_level_is_divided_by_its_own_spread() -> None:
    all_, one, two = math.sqrt(10), 2.0, math.sqrt(2)
    leaves = [-4 / all_ - 2 / one, 2 / one, -2 / all_, 2 / all_ - 1 / two, 4 / all_ + 1 / two]
    kept = (leaves[1] + leaves[2]) / 2
    found = advantages(TreeGRPO(eps=0.0), *of_sample("s", [*small_tree(), *OTHER]))
    assert found == pytest.approx([leaves[0], kept, *leaves[1:]])


def test_trees_of_different_prompts_are_not_compared() -> None:
    turns = score(MEAN_ONLY, *small_tree(), *OTHER)
    assert [turn.advantage for turn in turns] == [-4.0, 2.0, 4.0, 0.0, -2.0, 2.0]
    assert [turn.group for turn in turns] == [0] * 4 + [1] * 2


def test_a_leaf_without_a_credit_is_no_rollout() -> None:
    found = advantages(MEAN_ONLY, *node("a", [None, 9.0], kept=1), *node("b", [4.0, 2.0], kept=1))
    assert found == [None, 0.0, 2.0, -2.0]
