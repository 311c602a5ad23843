from __future__ import annotations

from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.magrpo import MAGRPO
from tests.rollout.helpers import play, table
from tests.training.callbacks.estimators import advantages, node, score, small_tree


def test_a_candidate_is_compared_with_its_siblings_only() -> None:
    turns = score(MAGRPO(), *small_tree())
    assert [turn.advantage for turn in turns] == [-4.5, 4.5, 1.0, -1.0]
    assert [turn.group for turn in turns] == [0, 0, 1, 1]


def test_a_return_is_that_of_the_end_and_not_of_the_step() -> None:
    # a's 2 is kept for what it leads to, 2 + 3, although its step earned less than the 4, which leads to 4 - 2.
    sampler = TreeSampler(turns=1, branches=2, credit="continuation")
    played = play(sampler, table({"a:": ["4/0", "2/0"], "b:a4": ["-2/0"], "b:a2": ["3/0", "5/0"]}))
    assert advantages(MAGRPO(), *played.rollout.turns) == [-1.5, 1.5, -1.0, 1.0]


def test_a_candidate_whose_return_is_not_known_is_left_out() -> None:
    assert advantages(MAGRPO(), *node("a", [None, 3.0, 1.0], kept=1)) == [None, 1.0, -1.0]
