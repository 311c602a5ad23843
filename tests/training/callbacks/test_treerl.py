from __future__ import annotations

import pytest

from atgrpo.training.callbacks.treerl import TreeRL
from tests.training.callbacks.estimators import advantages, node, score, small_tree, with_rewards


def test_a_value_against_the_roots_and_the_parents() -> None:
    # a: twice (0 - 2) and (3 - 2); b: (4 - 2) + (4 - 3) and (2 - 2) + (2 - 3)
    turns = score(TreeRL(), *small_tree())
    assert [turn.advantage for turn in turns] == [-4.0, 2.0, 3.0, -1.0]
    assert [turn.group for turn in turns] == [0] * 4


def test_several_trees_have_roots_of_their_own() -> None:
    other = node("a", [6.0, 8.0], kept=0, tree=1)
    assert advantages(TreeRL(), *small_tree(), *other) == [-4.0, 2.0, 3.0, -1.0, -2.0, 2.0]


def test_the_second_turn_grows_from_the_last_agent_of_the_first() -> None:
    # Leaves 0 | 4 | 3, 1: V 0 and 8 / 3 for a, 4 and 2 for b, root 2.
    second = node("a", [3.0, 1.0], kept=0, turn=1)
    found = advantages(TreeRL(), *small_tree(), *second)
    v = 8 / 3
    assert found == pytest.approx([-4, 2 * (v - 2), 2 + (4 - v), 0 + (2 - v), 1 + 1, -1 - 1])


def test_a_playout_is_one_more_leaf_of_its_candidate() -> None:
    # The playout of a's first candidate ended at 6, which takes the place of its credit: leaves 6, 4, 2.
    playout = node("b", [6.0], kept=-1, node=1)
    # V: 6 and 3 for a, root 4.
    assert advantages(TreeRL(), *small_tree(), *playout) == [4.0, -2.0, 1.0, -3.0, 2.0]


def test_leaves_without_a_credit_are_no_rollouts() -> None:
    # Under credit=backup a candidate that was neither final nor kept is not known: leaves 4 and 2.
    turns = score(TreeRL(), *node("a", [None, 9.0], kept=1), *node("b", [4.0, 2.0], kept=1))
    assert [turn.advantage for turn in turns] == [None, 0.0, 2.0, -2.0]
    # Nothing is known of what was grown from the kept one.
    turns = score(TreeRL(), *node("a", [1.0, 9.0], kept=1), *node("b", [None, None], kept=1))
    assert [turn.advantage for turn in turns] == [0.0, None, None, None]
    assert [turn.rewards.credit for turn in turns] == [1.0, None, None, None]


def test_a_rollout_earns_what_its_steps_have_earned() -> None:
    # The kept candidate lost 2: of 4 and 2, whose own steps earned nothing, -1 (the mean over two steps) remains.
    a, b = small_tree()[:2], small_tree()[2:]
    a[1] = with_rewards(a[1], 9.0, -2.0)
    # Leaves 0, 3, 1: root 4 / 3, V of the kept one 2.
    assert advantages(TreeRL(), *a, *b) == pytest.approx([-8 / 3, 4 / 3, 5 / 3 + 1, -1 / 3 - 1])
