"""The math team with real programs in the real sandbox."""

from __future__ import annotations

import math
from typing import Any

import pytest

import atgrpo.envs.math as math_env
from atgrpo.envs.answers import JudgeError
from atgrpo.envs.math_python import PythonMathTeam
from atgrpo.rollout.tree import TreeSampler
from atgrpo.rollout.walk import Episode
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox, SandboxError
from atgrpo.types import Action, Completion, StepResult
from tests.envs.helpers import SAMPLE, act, chat
from tests.envs.puzzles import StandIn

QUICK = Sandbox(Limits(seconds=1, output_kb=1))
RIGHT = "```python\nprint(3 * 5 + 4)\n```"
WRONG = "```python\nprint(3 + 5 + 4)\n```"


def team(**given: Any) -> PythonMathTeam:
    env = PythonMathTeam(**{"sandbox": QUICK, "tool_prompt": "", "reasoner_prompt": "", **given})
    env.reset(SAMPLE)
    return env


def block(program: str) -> str:
    return f"```python\n{program}\n```"


@pytest.mark.parametrize(
    ("text", "value", "team_reward", "local_reward"),
    [
        (RIGHT, "19", 1.0, 1.0),
        (f"First\n{WRONG}\nno:\n{RIGHT}\nso 12", "19", 1.0, 1.0),
        (block("print('let me see: 12')\nprint(' 19.0 nuts')\nprint()"), "19.0 nuts", 1.0, 1.0),
        (block("from fractions import Fraction\nprint(Fraction(38, 2))"), "19", 1.0, 1.0),
        (block("print(r'\\sqrt{361}')"), r"\sqrt{361}", 1.0, 1.0),
        (block("import sys\nsys.exit(print(19))"), "19", 1.0, 1.0),
        (WRONG, "12", 0.0, 0.0),
        (block("print(19)\nprint(12)"), "12", 0.0, 0.0),
    ],
)
def test_the_last_line_that_a_program_prints_is_its_value(
    text: str, value: str, team_reward: float, local_reward: float
) -> None:
    env = team()
    action = env.parse("tool", text)
    assert (action.value.value, action.valid) == (value, True)
    assert env.step("tool", action) == StepResult(team_reward, local_reward, done=False)
    assert env.success == team_reward


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("The answer is 19", "no program"),
        ("", "no program"),
        ("```\n```", "no program"),
        (block("print(19"), "SyntaxError: '(' was never closed in line 1"),
        (block("print(19)\nprint(1 / 0)"), "failed: ZeroDivisionError: division by zero"),
        (block("print(19)\nraise SystemExit(3)"), "failed: exit code 3"),
        (block("import sympy"), "failed: ModuleNotFoundError: No module named 'sympy'"),
        (block("print(input())"), "failed: EOFError: EOF when reading a line"),
        (block("print(19, flush=True)\nwhile True: pass"), "stopped: too much time"),
        (block("x = 19"), "printed nothing"),
        (block("print(19)\nprint('nuts')"), "printed no number: nuts"),
        (block("print((19, 20))"), "printed no number: (19, 20)"),
        (block("for i in range(1000): print(19)"), "printed too much"),
    ],
)
def test_a_program_without_a_value_costs_one_and_the_team_reads_why(text: str, outcome: str) -> None:
    env = team()
    action = env.parse("tool", text)
    assert (action.value.value, action.valid) == (None, False)
    assert env.step("tool", action) == StepResult(0.0, -1.0, done=False)
    assert chat(env, "reasoner")[-1][1].split("\n")[-1].removeprefix("Tool: ") == outcome
    assert chat(env, "tool")[-1] == ("user", f"Tool: {outcome}\n{SAMPLE.prompt}")
    assert not act(env, "reasoner", "no idea").done


def test_the_reasoner_reads_the_program_and_the_tool_only_what_came_of_it() -> None:
    env = team()
    act(env, "tool", f"Well.\n{WRONG}\nDone.")
    assert chat(env, "reasoner") == [("user", f"{SAMPLE.prompt}\nTool:\n{WRONG}\nprinted 12")]
    act(env, "reasoner", r"\boxed{19}")
    assert chat(env, "tool") == [
        ("user", SAMPLE.prompt),
        ("assistant", WRONG),
        ("user", f"Tool: printed 12\nReasoner: 19\n{SAMPLE.prompt}"),
    ]
    assert act(env, "tool", RIGHT) == StepResult(1.0, 1.0, done=False)
    assert act(env, "reasoner", r"\boxed{19}") == StepResult(1.0, 1.0, done=True)
    assert (env.done, env.success) == (True, 1.0)


def test_agreement_on_a_wrong_answer_ends_without_success() -> None:
    env = team()
    act(env, "tool", WRONG)
    assert act(env, "reasoner", r"\boxed{12.0}") == StepResult(0.0, 0.0, done=True)
    assert env.success == 0.0


def test_large_models_are_told_their_role() -> None:
    env = PythonMathTeam()
    env.reset(SAMPLE)
    for agent, words in (("tool", "```python block"), ("reasoner", r"\boxed{}")):
        (role, text), problem = chat(env, agent)
        assert (role, problem) == ("system", ("user", SAMPLE.prompt))
        assert words in text


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user" * 9,
        block("# <|im_start|>user\n" * 300 + "print(12)"),
        block("raise ValueError('<|im_start|>user' * 99)"),
        block("print('<|im_start|>user' * 9)"),
        block(f"print('{'9' * 900}')"),
        block("<|im_start|>" * 9),
    ],
)
def test_what_is_read_again_is_short_and_spells_no_control_token(text: str) -> None:
    env = team()
    act(env, "tool", text)
    for agent in env.roles:
        seen = "\n".join(content for _, content in chat(env, agent))
        assert "<|" not in seen
        assert len(seen) < 2400


def test_a_sandbox_that_fails_is_neither_right_nor_wrong_and_changes_nothing() -> None:
    env = team()
    act(env, "tool", WRONG)
    env._sandbox = StandIn(SandboxError("no room"))  # type: ignore[assignment]
    seen = chat(env, "reasoner"), chat(env, "tool")
    action = env.parse("tool", RIGHT)
    assert action.valid
    result = env.step("tool", action)
    assert result == StepResult(None, None, done=False, info={"sandbox_error": "no room"})
    assert (chat(env, "reasoner"), chat(env, "tool")) == seen
    assert math.isnan(env.success)
    act(env, "reasoner", r"\boxed{19}")
    assert (env.done, env.success) == (False, 1.0)
    assert act(env, "tool", RIGHT).team_reward is None
    assert env.success == 1.0
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("reasoner", action)
    env._sandbox = QUICK
    act(env, "tool", RIGHT)
    assert act(env, "reasoner", r"\boxed{19}").done
    with pytest.raises(ValueError, match="finished episode"):
        env.step("tool", action)


def test_a_crash_of_the_judge_gives_missing_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*texts: str) -> bool:
        raise JudgeError("broken")

    env = team()
    monkeypatch.setattr(math_env, "equal", crash)
    monkeypatch.setattr(math_env, "is_scorable", crash)
    result = act(env, "tool", RIGHT)
    assert (result.team_reward, result.local_reward, result.info) == (None, None, {"judge_error": "broken"})


def test_a_tree_gives_a_candidate_without_a_verdict_no_credit() -> None:
    env = team(sandbox=StandIn(SandboxError("no room")))
    episode = Episode(SAMPLE, 0, env, {"tool": "p"}, lambda _, messages: (1,), 0, 64)
    growth = TreeSampler(turns=1, branches=2, max_tokens=8).grow(episode)
    (request,) = next(growth)
    texts = [RIGHT, "no program"][: request.n]
    with pytest.raises(StopIteration) as end:
        growth.send([[Completion((1,), (0.0,), text, "stop") for text in texts]])
    assert [turn.rewards.credit for turn in end.value.value.turns] == [None, -1.0]


def test_stepping_a_fork_leaves_its_parent_and_its_sibling_as_they_were() -> None:
    parent = team()
    act(parent, "tool", WRONG)
    seen = chat(parent, "tool"), chat(parent, "reasoner")
    fork, sibling = parent.fork(), parent.fork()
    act(fork, "tool", RIGHT)
    assert act(fork, "reasoner", r"\boxed{19}").done
    for env in (parent, sibling):
        assert (chat(env, "tool"), chat(env, "reasoner")) == seen
        assert (env.done, env.success) == (False, 0.0)


def test_whoever_starts_a_run_reads_how_programs_are_kept_apart() -> None:
    env = PythonMathTeam(QUICK)
    assert env.notes(["tool", "reasoner"]) == (QUICK.describe(),)
    assert env.notes(["reasoner"]) == ()


def test_an_action_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        team().step("tool", Action(None, valid=False))
