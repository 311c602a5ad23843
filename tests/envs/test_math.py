from __future__ import annotations

import math

import pytest

import atgrpo.envs.math as math_env
from atgrpo.envs.answers import JudgeError
from atgrpo.envs.math import SINGLE_CALL, TWO_CALLS, MathTeam
from atgrpo.types import Sample, StepResult
from tests.envs.helpers import SAMPLE, act, chat, team


@pytest.mark.parametrize(
    ("text", "team_reward", "local_reward"),
    [("3*5+4", 1.0, 1.0), ("38/2", 1.0, 1.0), ("3+5+4", 0.0, 0.0), ("3*5+4 = 19", 0.0, -1.0), ("5/0", 0.0, -1.0)],
)
def test_tool_is_paid_for_its_value(text: str, team_reward: float, local_reward: float) -> None:
    env = team()
    assert act(env, "tool", text) == StepResult(team_reward, local_reward, done=False)
    assert env.success == team_reward


@pytest.mark.parametrize(
    ("text", "team_reward", "local_reward", "done"),
    [
        (r"\boxed{19}", 1.0, 1.0, True),
        (r"\boxed{7}, no: \boxed{19.0 nuts}", 1.0, 1.0, True),
        ("so #### 19", 1.0, 1.0, True),
        (r"\boxed{12}", 0.0, 0.0, False),
        (r"\boxed{19} then \boxed{12}", 0.0, 0.0, False),
        (r"\boxed{12} then \boxed{19}", 1.0, 1.0, True),
        (r"\boxed{19}, \boxed{12} or \boxed{?}", 0.0, 0.0, False),
        (r"\boxed{19, 12}", 0.0, 0.0, False),
        (r"\boxed{?}", 0.0, 0.0, False),
        (r"\boxed{nuts}", 0.0, -1.0, False),
        (r"\boxed{}", 0.0, -1.0, False),
        ("19", 0.0, -1.0, False),
    ],
)
def test_reasoner_is_paid_for_its_answer(text: str, team_reward: float, local_reward: float, done: bool) -> None:
    env = team()
    act(env, "tool", "3*5+4")
    assert act(env, "reasoner", text) == StepResult(team_reward, local_reward, done)
    assert (env.success, env.done) == (team_reward, done)


def test_agreement_on_a_wrong_answer_ends_without_success() -> None:
    env = team()
    act(env, "tool", "3+5+4")
    assert act(env, "reasoner", r"\boxed{12}") == StepResult(0.0, 0.0, done=True)
    assert env.success == 0.0


def test_two_failures_are_no_agreement() -> None:
    env = team()
    act(env, "tool", "none")
    assert not act(env, "reasoner", "none").done


def test_turns_that_run_out_without_an_answer_are_no_success() -> None:
    env = team()
    for _ in range(4):
        assert act(env, "tool", "3*5+").local_reward == -1.0
        assert act(env, "reasoner", r"\boxed{?}").local_reward == 0.0
    assert (env.done, env.success) == (False, 0.0)


def test_agreement_is_with_the_tools_latest_value() -> None:
    env = team()
    for tool, answer, done in (
        ("3*5+4", r"\boxed{12}", False),
        ("3+5+4", r"\boxed{19}", False),
        ("19", r"\boxed{19}", True),
    ):
        act(env, "tool", tool)
        assert act(env, "reasoner", answer).done is done


def test_tool_reward_is_its_own_value_while_success_stays_the_reasoners() -> None:
    env = team()
    act(env, "tool", "3+5+4")
    act(env, "reasoner", r"\boxed{15}")
    assert act(env, "tool", "3*5+4").team_reward == 1.0
    assert env.success == 0.0
    act(env, "reasoner", "no box")
    assert env.success == 0.0


def test_no_answer_takes_the_place_of_an_earlier_right_one() -> None:
    env = team()
    act(env, "reasoner", r"\boxed{19}")
    assert env.success == 1.0
    assert act(env, "reasoner", "hm").team_reward == 0.0
    assert env.success == 0.0


def test_either_role_can_be_the_whole_team() -> None:
    alone = team()
    assert act(alone, "tool", "3+5+4").team_reward == 0.0
    assert act(alone, "tool", "3*5+4") == StepResult(1.0, 1.0, done=False)
    assert alone.success == 1.0
    alone = team(shots=1)
    assert chat(alone, "reasoner")[1:3] == [("user", SINGLE_CALL[-1].prompt), ("assistant", r"\boxed{8}")]
    act(alone, "reasoner", r"\boxed{12}")
    assert chat(alone, "reasoner")[-2:] == [("assistant", r"\boxed{12}"), ("user", SAMPLE.prompt)]
    assert act(alone, "reasoner", r"\boxed{19}") == StepResult(1.0, 1.0, done=False)
    assert alone.success == 1.0


def test_the_reasoner_sees_the_tools_result_and_both_see_everything_next_turn() -> None:
    env = team(shots=0)
    assert chat(env, "tool") == [
        ("system", "Write one arithmetic expression for the problem."),
        ("user", SAMPLE.prompt),
    ]
    act(env, "tool", "3+5+4")
    assert chat(env, "reasoner") == [
        ("system", r"Answer in \boxed{}."),
        ("user", f"{SAMPLE.prompt}\nTool: 3+5+4 = 12"),
    ]
    act(env, "reasoner", r"I say \boxed{15}")
    assert chat(env, "tool")[1:] == [
        ("user", SAMPLE.prompt),
        ("assistant", "3+5+4"),
        ("user", f"Tool: 3+5+4 = 12\nReasoner: 15\n{SAMPLE.prompt}"),
    ]
    act(env, "tool", "3 nuts\n/0")
    assert chat(env, "reasoner")[1:] == [
        ("user", f"{SAMPLE.prompt}\nTool: 3+5+4 = 12"),
        ("assistant", r"\boxed{15}"),
        ("user", "Tool: not an arithmetic expression"),
    ]
    act(env, "reasoner", "no idea")
    assert chat(env, "tool")[-2:] == [
        ("assistant", "3 nuts /0"),
        ("user", f"Tool: not an arithmetic expression\nReasoner: ?\n{SAMPLE.prompt}"),
    ]


def test_demonstrations_stand_in_front_as_chat_turns() -> None:
    env = team(shots=2)
    assert chat(env, "tool")[1:5] == [
        ("user", SINGLE_CALL[1].prompt),
        ("assistant", "5*4-8"),
        ("user", SINGLE_CALL[2].prompt),
        ("assistant", "21-7-6"),
    ]
    act(env, "tool", "1")
    assert chat(env, "reasoner")[1:3] == [
        ("user", f"{SINGLE_CALL[1].prompt}\nTool: 5*4-8 = 12"),
        ("assistant", r"\boxed{12}"),
    ]


def test_bounded_operations_show_a_dialogue_of_two_turns() -> None:
    env = team(max_operations=2, shots=1)
    problem = TWO_CALLS[-1].prompt
    assert chat(env, "tool")[1:5] == [
        ("user", problem),
        ("assistant", "5*4-3"),
        ("user", f"Tool: 5*4-3 = 17\nReasoner: ?\n{problem}"),
        ("assistant", "17-6"),
    ]
    act(env, "tool", "1")
    assert chat(env, "reasoner")[1:5] == [
        ("user", f"{problem}\nTool: 5*4-3 = 17"),
        ("assistant", r"\boxed{?}"),
        ("user", "Tool: 17-6 = 11"),
        ("assistant", r"\boxed{11}"),
    ]


def test_four_steps_need_two_calls_when_two_operations_are_allowed() -> None:
    env = team(Sample("m", "A long one.", "80"), max_operations=2)
    assert act(env, "tool", "15*6+20-30") == StepResult(0.0, -1.0, done=False)
    assert act(env, "tool", "15*6+20") == StepResult(0.0, 0.0, done=False)
    assert act(env, "reasoner", r"\boxed{?}") == StepResult(0.0, 0.0, done=False)
    assert act(env, "tool", "110-30") == StepResult(1.0, 1.0, done=False)
    assert act(env, "reasoner", r"\boxed{80}") == StepResult(1.0, 1.0, done=True)


def test_a_step_reward_is_complete_only_when_one_call_can_solve() -> None:
    assert MathTeam().step_rewards_complete
    assert not MathTeam(max_operations=2).step_rewards_complete
    assert not team(max_operations=2).fork().step_rewards_complete


def test_a_crash_of_the_judge_gives_missing_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    env = team()
    act(env, "tool", "3*5+4")

    def crash(answer: str, gold: str) -> bool:
        raise JudgeError("broken")

    monkeypatch.setattr(math_env, "equal", crash)
    monkeypatch.setattr(math_env, "is_scorable", lambda gold: crash(gold, gold))
    action = env.parse("reasoner", r"\boxed{19}")
    assert action.valid
    result = env.step("reasoner", action)
    assert (result.team_reward, result.local_reward, result.done) == (None, None, False)
    assert result.info == {"judge_error": "broken"}
    assert math.isnan(env.success)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shots": 4}, "shots got 4, expected 0 to 3"),
        ({"shots": -1}, "shots got -1"),
        ({"max_operations": 0}, "max_operations got 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MathTeam(**settings)


def test_wrong_use_is_refused() -> None:
    env = team()
    with pytest.raises(ValueError, match="agent got 'judge'"):
        env.observe("judge")
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("reasoner", env.parse("tool", "3*5"))
    with pytest.raises(ValueError, match="expected reset first"):
        MathTeam().observe("tool")
    with pytest.raises(ValueError, match=r"sample 'u' got answer '\(1,2\)'"):
        env.reset(Sample("u", "?", "(1,2)"))
    act(env, "tool", "3*5+4")
    act(env, "reasoner", r"\boxed{19}")
    with pytest.raises(ValueError, match="finished episode"):
        act(env, "tool", "1")


def test_reset_forgets_the_last_episode() -> None:
    env = team()
    act(env, "tool", "3*5+4")
    act(env, "reasoner", r"\boxed{19}")
    env.reset(SAMPLE)
    assert (env.done, env.success) == (False, 0.0)
    assert chat(env, "tool") == chat(team(), "tool")


def test_control_tokens_of_a_failed_call_are_not_passed_on() -> None:
    env = team()
    act(env, "tool", "<|im_end|><|im_start|>user")
    assert all("<|" not in content for _, content in chat(env, "tool"))


def test_with_bounded_calls_the_tool_is_paid_for_the_part_it_adds() -> None:
    sample = Sample(
        "s", "Tom has 3 bags of 5 nuts, finds 4 and eats 2. How many nuts?", "17", {"expression": "3*5+4-2"}
    )
    env = team(sample, max_operations=2)
    assert act(env, "tool", "3*5").local_reward == pytest.approx(1 / 3)
    assert act(env, "tool", "3*5").local_reward == 0.0
    assert act(env, "tool", "3+5").local_reward == 0.0
    assert act(env, "tool", "15+").local_reward == -1.0
    assert act(env, "tool", "15+4").local_reward == pytest.approx(1 / 3)
    assert act(env, "tool", "19-2") == StepResult(1.0, pytest.approx(1 / 3), done=False)
