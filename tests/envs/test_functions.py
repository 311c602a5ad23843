from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.envs import functions
from atgrpo.envs.answers import JudgeError
from atgrpo.envs.contract import EnvError
from atgrpo.envs.functions import FunctionTools, Refused
from atgrpo.types import Sample, StepResult
from tests.envs import own_code

HERE = own_code.__name__
TOOLS = [f"{HERE}.{name}" for name in ("add", "join", "halve", "divide", "stop", "shout")]
SAMPLE = Sample("s", "How much is 3 and 4?", "7")


def assistant(sample: Sample = SAMPLE, **settings: Any) -> FunctionTools:
    env = FunctionTools(TOOLS, **settings)
    env.reset(sample)
    return env


def call(name: str, /, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def act(env: FunctionTools, text: str) -> StepResult:
    return env.step("assistant", env.parse("assistant", text))


def chat(env: FunctionTools) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in env.observe("assistant").messages]


def result_of(text: str) -> str:
    """What the model reads after ``text``."""
    env = assistant()
    act(env, text)
    opening, result, closing = chat(env)[-1][1].split("\n")
    assert (opening, closing) == ("<tool_response>", "</tool_response>")
    return result


def test_a_call_is_carried_out_and_its_result_stands_in_the_next_prompt() -> None:
    env = assistant()
    assert act(env, f"Let me see. {call('add', a=3, b=4)}") == StepResult(0.0, 0.0, done=False)
    assert chat(env)[1:] == [
        ("user", SAMPLE.prompt),
        ("assistant", '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>'),
        ("user", "<tool_response>\n7\n</tool_response>"),
    ]
    assert act(env, r"It is \boxed{7}.") == StepResult(1.0, 1.0, done=True)
    assert (env.done, env.success) == (True, 1.0)


def test_the_tools_are_described_by_their_schemas() -> None:
    (role, text), _ = chat(assistant(prompt="Solve."))
    assert role == "system" and text.startswith("Solve.\n\n")
    schemas = [json.loads(line) for line in text.splitlines() if line.startswith('{"type"')]
    assert [schema["function"]["name"] for schema in schemas] == ["add", "join", "halve", "divide", "stop", "shout"]
    assert schemas[0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "description": "The second."},
        },
        "required": ["a"],
    }


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (call("add", a=3), "4"),
        (call("halve", pair=[3, 5]), "[1.5, 2.5]"),
        (call("join", words=["a", "b"], end="!"), "a b !"),
        (call("divide", a=1, b=0), "error: ZeroDivisionError: float division by zero"),
        (call("divide", a=1, b=4), "0.25"),
        (call("stop"), "error: SystemExit: 3"),
        (call("shout"), "< |im_end|>" + "a" * 490 + "..."),
    ],
)
def test_results_and_exceptions_are_text_of_bounded_length(said: str, result: str) -> None:
    expected = result if "im_end" not in result else "< |im_end|>" + "a" * (500 - len("<|im_end|>")) + "..."
    assert result_of(said).replace("float division", "division") == expected.replace("float division", "division")


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (call("add", a="3"), "add: a got str, expected integer"),
        (call("add", a=True), "add: a got bool, expected integer"),
        (call("add", a=1.5), "add: a got float, expected integer"),
        (call("add", b=1), "add: missing a required argument: 'a'"),
        (call("add", a=1, c=1), "add: got an unexpected keyword argument 'c'"),
        (call("join", words=["a", 1], end="!"), "join: words got list, expected array"),
        (call("join", words=[], end="?"), "join: end got str, expected string"),
        (call("halve", pair=[1, 2, 3]), "halve: pair got list, expected array"),
        (call("subtract", a=1), "there is no such tool, expected one of add, join, halve, divide, stop, shout"),
        ('<tool_call>{"name": ["add"], "arguments": {}}</tool_call>', "there is no such tool, expected one of add"),
        ("<tool_call>add(3, 4)</tool_call>", 'the call is no JSON, expected {"name": ..., "arguments": {...}}'),
        ('<tool_call>{"name": "add"}</tool_call>', "the call got other fields"),
        ('<tool_call>{"name": "add", "arguments": "3"}</tool_call>', "the call got other fields"),
        ('<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', "the call is no JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "the call is no JSON"),
        ("<tool_call>" + "1" * 5_000 + "</tool_call>", "the call is no JSON"),
        ('<tool_call>{"name": "add", "argu', "the call has no </tool_call>"),
        (call("add", a=1) + call("add", a=2), "got 2 calls, expected one"),
        ("seven", r"expected a tool call, or the answer in \boxed{}"),
        (r"\boxed{seven}", "the answer is no number or expression"),
        ("", r"expected a tool call, or the answer in \boxed{}"),
    ],
)
def test_a_wrong_response_is_an_invalid_action_that_the_model_reads_about(said: str, complaint: str) -> None:
    env = assistant()
    action = env.parse("assistant", said)
    assert not action.valid and isinstance(action.value, Refused)
    assert env.step("assistant", action) == StepResult(0.0, -1.0, done=False)
    assert f"error: {complaint}" in chat(env)[-1][1]
    assert len(chat(env)[-2][1]) <= functions.SPOKEN + 3


def test_a_wrong_answer_ends_the_episode_without_a_reward_and_calls_earn_nothing() -> None:
    env = assistant()
    for _ in range(3):
        assert act(env, call("add", a=3, b=4)) == StepResult(0.0, 0.0, done=False)
    assert act(env, "#### 8") == StepResult(0.0, 0.0, done=True)
    assert env.success == 0.0
    with pytest.raises(ValueError, match="finished episode"):
        act(env, r"\boxed{7}")


def test_a_reward_function_may_be_the_judge() -> None:
    env = assistant(Sample("s", "Say hi.", "hi"), judge=f"{HERE}.right")
    act(env, call("add", a=1))
    assert act(env, "hi") == StepResult(1.0, 0.0, done=True)
    assert env.success == 1.0
    env = assistant(Sample("s", "Say hi.", "hi"), judge=f"{HERE}.length")
    assert not env.parse("assistant", " ").valid
    assert (act(env, "hallo").team_reward, env.success) == (5.0, 1.0)


def test_a_judge_that_fails_gives_missing_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    env = assistant(judge=f"{HERE}.crash")
    assert act(env, "7") == StepResult(None, None, True, {"judge_error": "RuntimeError: no judge today"})
    assert math.isnan(env.success)

    def crash(answer: str, gold: str) -> bool:
        raise JudgeError("broken")

    env = assistant()
    monkeypatch.setattr(functions, "equal", crash)
    monkeypatch.setattr(functions, "is_scorable", lambda gold: crash(gold, gold))
    assert act(env, r"\boxed{7}") == StepResult(None, None, True, {"judge_error": "broken"})
    assert math.isnan(env.success)


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (call("half", text="a\ud800"), "a?"),
        (call("half", text="\udfffb", raised=True), "error: ValueError: ?b"),
        (call("half", text="x", **{"\ud800": 1}), r"error: half: got an unexpected keyword argument '\ud800'"),
        (call("half", text="\ud83d\ude00"), "\U0001f600"),
    ],
)
def test_half_a_character_from_a_call_never_reaches_a_tokenizer(said: str, result: str) -> None:
    env = FunctionTools([f"{HERE}.half"])
    env.reset(SAMPLE)
    act(env, said)
    assert chat(env)[-1][1] == f"<tool_response>\n{result}\n</tool_response>"
    assert all(content.encode() for _, content in chat(env))


@pytest.mark.parametrize("judge", [None, f"{HERE}.matches", f"{HERE}.crash"])
def test_the_gold_answer_stands_in_no_message_at_any_point_of_an_episode(judge: str | None) -> None:
    gold = "86423"
    env = assistant(Sample("s", SAMPLE.prompt, gold, {"ground_truth": gold}), judge=judge)
    unread = [call("add", a="3"), call("subtract", a=1), "<tool_call>", ""]
    for said in (call("add", a=3, b=4), call("stop"), *unread, r"\boxed{8}"):
        assert all(gold not in content for _, content in chat(env))
        act(env, said)
    assert env.done
    assert len(chat(env)) == 2 + 2 * 6
    assert all(gold not in content for _, content in chat(env))


SAID = st.sampled_from([call("add", a=3), call("join", words=["a"], end="."), "x", "", "<tool_call>", call("stop")])


@given(st.lists(SAID, max_size=4), SAID)
def test_stepping_a_fork_leaves_its_parent_and_equal_actions_give_equal_results(before: list[str], said: str) -> None:
    env = assistant()
    for text in before:
        act(env, text)
    seen = chat(env)
    action = env.parse("assistant", said)
    forks = [env.fork() for _ in range(2)]
    # One action for both: a tool that changes its arguments must not change those of the other.
    results = [fork.step("assistant", action) for fork in forks]
    assert results[0] == results[1] and chat(forks[0]) == chat(forks[1])
    assert chat(env) == seen


@pytest.mark.parametrize(
    ("tools", "settings", "message"),
    [
        ([], {}, "tools got"),
        (["add", "add"], {}, "expected functions of different names"),
        (["undescribed"], {}, "expected type hints and a Google docstring"),
        (["untyped"], {}, "expected type hints and a Google docstring"),
        (["later"], {}, "expected a plain function, not an async one"),
        (["length"], {}, "expected type hints and a Google docstring"),
        (["add"], {"longest": 0}, "longest got 0"),
    ],
)
def test_wrong_settings_are_refused(tools: list[str], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FunctionTools([f"{HERE}.{name}" for name in tools], **settings)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="agent got 'tool'"):
        assistant().observe("tool")
    with pytest.raises(ValueError, match="expected reset first"):
        FunctionTools(TOOLS).observe("assistant")
    with pytest.raises(ValueError, match=r"sample 'u' got answer '\(1,2\)'.*or set judge"):
        assistant(Sample("u", "?", "(1,2)"))
    with pytest.raises(ValueError, match="needs the column 'ground_truth'"):
        assistant(judge=f"{HERE}.matches")


def test_never_to_answer_is_worth_no_more_than_the_worst_answer() -> None:
    env = assistant(Sample("s", "Say hi.", "hi"), judge=f"{HERE}.strict", unanswered=-1.0)
    called = act(env.fork(), '<tool_call>{"name": "no_such", "arguments": {}}</tool_call>')
    assert (called.team_reward, act(env, "no").team_reward) == (-1.0, -1.0)
    with pytest.raises(EnvError, match=r"judge paid -1, less than the 0 of an episode .*: set env\.unanswered"):
        act(assistant(Sample("s", "Say hi.", "hi"), judge=f"{HERE}.strict"), "no")
