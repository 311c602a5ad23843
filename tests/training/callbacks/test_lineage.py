from __future__ import annotations

import math
from random import Random

import pytest
import torch

from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.lineage import parents, rollout_returns
from tests.rollout.helpers import make_turn, play, prompt_of, table
from tests.training.callbacks.estimators import node, small_tree, with_rewards


def test_candidates_start_from_the_one_that_was_kept() -> None:
    assert parents(small_tree()).tolist() == [-1, -1, 1, 1]
    assert parents([*small_tree(), *node("a", [1.0, 1.0], kept=0, turn=1)]).tolist() == [-1, -1, 1, 1, 3, 3]


def test_trees_do_not_mix() -> None:
    turns = [t for pair in zip(small_tree(0), small_tree(1), strict=True) for t in pair]
    assert parents(turns).tolist() == [-1, -1, -1, -1, 2, 3, 2, 3]


def test_a_parents_text_is_in_its_childs_prompt() -> None:
    random = Random(0)
    sampler = TreeSampler(turns=2, branches=2, credit="continuation", train_continuations=True)
    turns = play(sampler, lambda request, i: f"{random.randrange(1, 100)}/0").rollout.turns
    above = parents(turns).tolist()
    assert any(turn.key.node for turn in turns)
    for turn, parent in zip(turns, above, strict=True):
        told = [part for part in prompt_of(turn).split(":")[1].split(",") if part]
        if parent < 0:
            assert told == []
        else:
            before = turns[parent]
            own = before.key.agent + before.completion.text.split("/")[0]
            assert told == [*(part for part in prompt_of(before).split(":")[1].split(",") if part), own]


def test_a_rollouts_return_is_its_last_team_reward_and_the_mean_of_its_locals() -> None:
    # 1 + 2 for the team; locals 3 and 1; the other way to it 5 and 1
    sampler = TreeSampler(turns=1, branches=2, credit="backup")
    replies = {"a:": ["0/-1", "1/3"], "b:a1": ["2/1", "1/5"]}
    turns = play(sampler, table(replies)).rollout.turns
    above = parents(turns)
    assert above.tolist() == [-1, -1, 1, 1]
    returns = rollout_returns(turns, above)
    assert math.isnan(returns[0])  # neither final nor kept
    assert returns[2:].tolist() == [3 + 2, 2 + 4]


def test_a_rollout_with_a_missing_local_reward_has_no_return() -> None:
    turns = [with_rewards(make_turn(), None, None), with_rewards(make_turn(agent="b"), 2.0, 1.0)]
    assert rollout_returns(turns, torch.tensor([-1, 0])).isnan().all()


@pytest.mark.parametrize("local", [0.1, 0.7, 1e8 / 3])
def test_equal_rewards_along_ways_of_different_length_are_equal_returns(local: float) -> None:
    turns = [with_rewards(make_turn(turn=t), local, local) for t in range(4)]
    assert rollout_returns(turns, torch.tensor([-1, 0, 1, -1]))[2:].unique().tolist() == [local]
