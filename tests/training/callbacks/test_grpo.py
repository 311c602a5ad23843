from __future__ import annotations

import pytest

from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.training.callbacks.grpo_pooled import PooledGRPO
from atgrpo.types import Turn
from tests.rollout.helpers import make_rollout, make_turn, play

MEAN_ONLY = GRPO(scale_by_std=False)


def score(callback: AdvantageCallback, *turns: Turn) -> list[Turn]:
    [rollout] = callback.on_rollout_end(None, None, [make_rollout(*turns)])
    return list(rollout.turns)


def test_a_long_trajectory_has_one_vote_and_its_turns_share_its_advantage() -> None:
    long = [make_turn(branch=1, turn=t, credit=0.0) for t in range(9)]
    turns = score(MEAN_ONLY, make_turn(branch=0, credit=1.0), *long)
    assert [turn.advantage for turn in turns] == [0.5] + [-0.5] * 9
    # Were every turn a vote, the mean would be .1 instead of .5.
    pooled = score(PooledGRPO(scale_by_std=False), make_turn(branch=0, credit=1.0), *long)
    assert [turn.advantage for turn in pooled] == pytest.approx([0.9] + [-0.1] * 9)


def test_a_return_is_the_mean_of_its_steps_over_all_agents() -> None:
    # Trajectory 0: mean(1, 2, 6) = 3; trajectory 1: mean(1, 0) = .5
    turns = score(
        MEAN_ONLY,
        make_turn(branch=0, credit=1.0),
        make_turn(branch=1, credit=1.0),
        make_turn(branch=0, agent="b", credit=2.0),
        make_turn(branch=1, agent="b", credit=0.0),
        make_turn(branch=0, turn=1, credit=6.0),
    )
    assert [turn.advantage for turn in turns] == [1.25, -1.25, 1.25, -1.25, 1.25]


def test_a_trajectory_with_an_unjudged_step_is_left_out_as_a_whole() -> None:
    turns = score(
        MEAN_ONLY,
        make_turn(branch=0, credit=1.0),
        make_turn(branch=1, credit=0.0),
        make_turn(branch=2, credit=9.0),
        make_turn(branch=2, turn=1, credit=None),
    )
    assert [turn.advantage for turn in turns] == [0.5, -0.5, None, None]
    # Without a credit, as the datamodule takes a credit without an advantage for a faulty estimator.
    assert [turn.rewards.credit for turn in turns] == [1.0, 0.0, None, None]
    assert [turn.group for turn in turns] == [0, 0, None, None]


def test_trees_are_refused() -> None:
    tree = play(TreeSampler(turns=1, branches=2), lambda request, i: "1/0").rollout
    with pytest.raises(ValueError, match="got trees, expected trajectories: use sampler=parallel"):
        GRPO().on_rollout_end(None, None, [tree])
