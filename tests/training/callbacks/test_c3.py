from __future__ import annotations

from atgrpo.training.callbacks.c3 import C3
from tests.training.callbacks.estimators import advantages, node, score, small_tree


def test_a_candidate_against_the_mean_of_the_others_of_its_node() -> None:
    # 6 - mean(0, 3), 0 - mean(6, 3), 3 - mean(6, 0)
    assert advantages(C3(), *node("a", [6.0, 0.0, 3.0], kept=0)) == [4.5, -4.5, 0.0]


def test_nodes_are_apart() -> None:
    turns = score(C3(), *small_tree())
    assert [turn.advantage for turn in turns] == [-9.0, 9.0, 2.0, -2.0]
    assert [turn.group for turn in turns] == [0, 0, 1, 1]


def test_a_candidate_without_an_outcome_is_nobodys_baseline() -> None:
    assert advantages(C3(), *node("a", [6.0, None, 3.0], kept=0)) == [3.0, None, -3.0]
