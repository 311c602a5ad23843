from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.envs.contract import EnvError
from atgrpo.envs.reward_functions import RewardFunctions, RewardTeam
from atgrpo.types import Sample, StepResult
from tests.envs import own_code

HERE = own_code.__name__
SAMPLE = Sample("s", "Say hi.", "hi", {"ground_truth": "hi", "task": "code"})


def named(*names: str) -> list[str]:
    return [f"{HERE}.{name}" for name in names]


def team(*names: str, **settings: Any) -> RewardTeam:
    env = RewardTeam(named(*names), **settings)
    env.reset(SAMPLE)
    return env


def act(env: RewardTeam, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def chat(env: RewardTeam, agent: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in env.observe(agent).messages]


def total(*names: str, weights: list[float] | None = None, text: str = "hi", **settings: Any) -> float | None:
    return RewardFunctions(named(*names), weights, **settings).score(SAMPLE, text).total


def test_rewards_are_summed_with_their_weights() -> None:
    assert total("length") == 2.0
    assert total("length", "matches", "right") == 4.0
    assert total("length", "matches", weights=[0.5, -3.0]) == -2.0
    assert total("weighted", text="hallo") == 5.0


def test_a_function_gets_messages_where_it_wants_messages() -> None:
    assert total("first_message", conversational=True) == 1.0


# TRL trainer example "multi-task reward functions": None means that a function does not apply to this sample.
def test_a_function_that_does_not_apply_is_left_out_and_none_at_all_is_missing_not_zero() -> None:
    assert total("only_maths", "length", weights=[5.0, 1.0]) == 2.0
    assert total("only_maths") is None
    assert total("only_maths", "nothing", "not_a_number") is None


def test_a_function_that_crashes_makes_the_reward_missing_whatever_the_others_say() -> None:
    score = RewardFunctions(named("length", "crash")).score(SAMPLE, "hi")
    assert score.total is None and score.error == "RuntimeError: no judge today"
    env = team("crash")
    result = act(env, "writer", "hi")
    assert (result.team_reward, result.local_reward, result.done) == (None, None, False)
    assert result.info["judge_error"] == "RuntimeError: no judge today"
    assert math.isnan(env.success)


def test_a_function_that_changes_what_it_is_given_changes_nothing_for_siblings() -> None:
    sample = Sample("s", "?", "!", {"tests": ["a", "b"]})
    functions = RewardFunctions(named("greedy"))
    assert [functions.score(sample, "x").total for _ in range(2)] == [2.0, 2.0]
    assert sample.meta["tests"] == ["a", "b"]


@pytest.mark.parametrize("name", ["no_list", "two"])
def test_a_function_that_returns_no_list_of_one_reward_stops_the_run(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} returned .*, expected a list of one number or None"):
        total(name)


@pytest.mark.parametrize(
    ("names", "settings", "message"),
    [
        (["later"], {}, "expected a plain function, not an async one"),
        (["by_ids"], {}, "needs 'completion_ids'; expected one that judges texts"),
        (["by_place"], {}, "expected a function that is called by keywords"),
        ([], {}, "rewards got none"),
        (["length", "length"], {}, "expected each function once"),
        (["length"], {"weights": [1.0, 2.0]}, "weights got 2, expected one for each of 1 rewards"),
        (["length"], {"roles": ["a", "a"]}, "roles got"),
        (["length"], {"roles": []}, "roles got"),
        (["length"], {"prompts": {"editor": "x"}}, "prompts got 'editor'"),
        (["length"], {"shown": 0}, "shown got 0"),
    ],
)
def test_wrong_settings_are_refused(names: list[str], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardTeam(named(*names), **settings)


def test_a_column_that_the_data_lacks_is_told_before_anything_is_sampled() -> None:
    env = RewardTeam(named("matches"))
    with pytest.raises(ValueError, match=r"needs the column 'ground_truth', sample 'x' has \['answer', 'task'\]"):
        env.reset(Sample("x", "?", "!", {"task": "code"}))


def test_the_last_roles_text_is_the_answer_and_it_sees_the_earlier_ones() -> None:
    env = team("matches", roles=["writer", "critic", "editor"], prompts={"critic": "Find faults."}, shown=8)
    assert act(env, "writer", "ho") == StepResult(0.0, 0.0, done=False)
    assert chat(env, "critic") == [("system", "Find faults."), ("user", "Say hi.\nwriter: ho")]
    assert act(env, "critic", "  ").local_reward == -1.0
    act(env, "critic", "<|im_end|>wrong")
    assert chat(env, "editor") == [("user", "Say hi.\nwriter: ho\ncritic: \ncritic: < |im_end...")]
    result = act(env, "editor", "hi")
    assert (result.team_reward, result.local_reward, result.done) == (1.0, 0.0, False)
    assert result.info["rewards"] == {f"{HERE}.matches": 1.0}
    assert env.success == 1.0
    assert act(env, "writer", "no").team_reward == 1.0
    assert act(env, "editor", "no").team_reward == 0.0
    assert env.success == 0.0


def test_success_is_clipped_or_by_a_threshold_that_ends_the_episode() -> None:
    env = team("length")
    assert env.success == 0.0
    assert act(env, "writer", "hallo").team_reward == 5.0
    assert (env.success, env.done) == (1.0, False)
    env = team("length", success_at=3)
    act(env, "writer", "hi")
    assert (env.success, env.done) == (0.0, False)
    assert act(env, "writer", "hey").done
    assert env.success == 1.0
    with pytest.raises(ValueError, match="finished episode"):
        act(env, "writer", "hi")


def test_a_low_threshold_does_not_end_an_episode_without_an_answer() -> None:
    env = team("length", success_at=0, roles=["writer", "editor"])
    act(env, "writer", "hi")
    assert (env.done, env.success) == (False, 0.0)


def test_one_role_has_complete_step_rewards_and_several_have_not() -> None:
    assert team("length").step_rewards_complete
    assert not team("length", roles=["writer", "editor"]).fork().step_rewards_complete


@pytest.mark.parametrize("reward", ["matches", "right", "crash"])
def test_the_gold_answer_stands_in_no_message_at_any_point_of_an_episode(reward: str) -> None:
    gold, roles = "86423", ["writer", "critic", "editor"]
    env = RewardTeam(named(reward), roles=roles, prompts={"critic": "Find faults."}, success_at=1)
    env.reset(Sample("s", "Say it.", gold, {"ground_truth": gold}))
    for agent, said in (*zip(roles, ["hi", "wrong", "ho"], strict=True), *zip(roles, ["", "8", "6423"], strict=True)):
        assert all(gold not in content for role in roles for _, content in chat(env, role))
        act(env, agent, said)
    # Six texts, of which each role has given two.
    assert [len(chat(env, role)) for role in roles] == [5, 6, 5]
    assert all(gold not in content for role in roles for _, content in chat(env, role))


@given(st.lists(st.sampled_from(["hi", "ho", "", "hallo"]), max_size=4), st.sampled_from(["hi", ""]))
def test_stepping_a_fork_leaves_its_parent_and_equal_actions_give_equal_results(before: list[str], text: str) -> None:
    env = team("length", "matches", roles=["writer", "editor"])
    for i, said in enumerate(before):
        act(env, env.roles[i % 2], said)
    seen = (chat(env, "writer"), chat(env, "editor"), env.success)
    forks = [env.fork(), env.fork()]
    assert act(forks[0], "editor", text) == act(forks[1], "editor", text)
    assert (chat(env, "writer"), chat(env, "editor"), env.success) == seen


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="agent got 'tool'"):
        team("length").observe("tool")
    with pytest.raises(ValueError, match="expected reset first"):
        RewardTeam(named("length")).observe("writer")
    env = team("length")
    act(env, "writer", "hi")
    env.reset(SAMPLE)
    assert (chat(env, "writer"), env.success) == ([("user", "Say hi.")], 0.0)


def test_an_episode_that_ends_before_the_answer_is_worth_no_more_than_the_worst_answer() -> None:
    env = team("strict", roles=["writer", "editor"], unanswered=-1.0)
    assert act(env, "writer", "far too long").team_reward == -1.0
    assert act(env, "editor", "wrong").team_reward == -1.0
    env = team("strict", roles=["writer", "editor"])
    act(env, "writer", "?")
    with pytest.raises(EnvError, match=r"rewards paid -1, less than the 0 of an episode .*: set env\.unanswered"):
        act(env, "editor", "wrong")
    # Alone, a role has always answered.
    assert act(team("strict"), "writer", "wrong").team_reward == -1.0
