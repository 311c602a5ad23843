from __future__ import annotations

import math
from dataclasses import replace

import pytest

from atgrpo.training.rollout_metrics import rollout_metrics, sampled_tokens
from atgrpo.types import Action, Rewards
from tests.rollout.helpers import make_rollout, make_turn


def test_lengths_are_those_sampled_cut_responses_included() -> None:
    out = rollout_metrics([make_rollout(make_turn(range(3)), make_turn(range(8), cut=True, advantage=None))])
    assert out["rollout/a/response_length"] == 5.5
    assert out["rollout/a/response_length_max"] == 8.0
    assert out["rollout/a/truncated"] == 0.5
    assert out["rollout/a/prompt_length"] == 3.0


def test_rewards_by_agent_and_turn() -> None:
    turns = [
        replace(make_turn(branch=0), rewards=Rewards(1.0, 0.5, 1.5)),
        replace(make_turn(branch=1), rewards=Rewards(None, 0.1, None), action=Action(None, valid=False)),
        replace(make_turn(turn=1), rewards=Rewards(0.0, 0.0, 0.0)),
        replace(make_turn(agent="b"), rewards=Rewards(None, None, None)),
    ]
    out = rollout_metrics([make_rollout(*turns)])
    assert out["rollout/a/reward"] == 0.75
    assert out["rollout/a/team_reward"] == 0.5
    assert out["rollout/a/local_reward"] == pytest.approx(0.2)
    assert out["rollout/a/valid_actions"] == pytest.approx(2 / 3)
    assert out["rollout/a/missing_rewards"] == pytest.approx(1 / 3)
    assert (out["turn_1/a/reward"], out["turn_1/a/valid_actions"], out["turn_2/a/reward"]) == (1.5, 0.5, 0.0)
    assert math.isnan(out["turn_1/b/reward"])
    assert out["rollout/b/missing_rewards"] == 1.0


def test_team_metrics() -> None:
    rollouts = [
        make_rollout(make_turn(turn=2), outcome=1.0, success_by_turn=(0.0, 1.0, 1.0), overlong=True),
        make_rollout(make_turn(), outcome=0.5, success_by_turn=(0.0, 0.0, 0.5)),
        make_rollout(outcome=0.0, success_by_turn=(0.0, 0.0, 0.0)),
    ]
    out = rollout_metrics(rollouts)
    assert out["rollout/success"] == 0.5
    assert out["rollout/trees"] == 3.0
    assert out["rollout/overlong_prompts"] == 1.0
    assert out["rollout/turns_per_tree"] == 2.0  # of the trees that were played at all
    assert [out[f"rollout/success_turn_{t}"] for t in (1, 2, 3)] == pytest.approx([0.0, 1 / 3, 0.5])


def test_turns_of_playouts_are_not_turns_of_the_tree() -> None:
    turns = [make_turn(turn=0), make_turn(turn=3, node=1, selected=False)]
    assert rollout_metrics([make_rollout(*turns)])["rollout/turns_per_tree"] == 1.0


def test_tokens_of_playouts_that_are_not_trained_on_count() -> None:
    assert (
        sampled_tokens([make_rollout(make_turn(range(3)), make_turn(range(4)), extra_tokens=5), make_rollout()]) == 12
    )


def test_group_metrics_by_hand() -> None:
    spread = [make_turn(group=0, credit=c, advantage=a) for c, a in [(1.0, 0.5), (0.0, -0.5)]]
    flat = [make_turn(group=1, credit=2.0, advantage=0.0, prompt=(i,)) for i in range(3)]
    lone, missing = make_turn(group=2, credit=7.0, advantage=0.0), make_turn(credit=None)
    out = rollout_metrics([make_rollout(*spread, *flat), make_rollout(lone, missing)])
    assert out["group/count"] == 3.0
    assert out["group/size"] == 2.0
    assert out["group/zero_variance"] == 0.5
    assert out["group/singleton"] == pytest.approx(1 / 3)
    assert out["group/reward_std"] == pytest.approx(math.sqrt(0.5) / 2)
    assert out["group/mixed_prompts"] == pytest.approx(1 / 3)
    assert out["group/advantage_std"] == pytest.approx(math.sqrt(0.1))  # .5 over 6 - 1
    assert out["group/advantage_max"] == 0.5


def test_nothing_played_gives_no_agent_and_no_group_metrics() -> None:
    out = rollout_metrics([make_rollout()])
    assert out["rollout/success"] == 0.0
    assert math.isnan(out["rollout/turns_per_tree"])
    assert not any(name.startswith(("group/", "turn_")) for name in out)


def test_what_an_environment_says_of_its_steps_is_averaged_over_those_that_say_it() -> None:
    turns = [
        replace(make_turn(branch=0), info={"tool": 1.0}),
        replace(make_turn(branch=1), info={"tool": 0.0, "found": 0.5}),
        make_turn(branch=2),
        make_turn(agent="b"),
    ]
    out = rollout_metrics([make_rollout(*turns)])
    assert (out["rollout/a/info/tool"], out["rollout/a/info/found"]) == (0.5, 0.5)
    assert not any(name.startswith("rollout/b/info") for name in out)
