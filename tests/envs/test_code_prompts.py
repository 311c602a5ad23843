from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.envs.code import CodeTeam
from atgrpo.envs.code_prompts import FUNCTION_SHOTS, STDIN_SHOTS
from atgrpo.envs.code_tests import Problem
from atgrpo.types import Sample
from tests.envs.code_helpers import GOOD, HALF, RIGHT, SAMPLE, WRONG, Inside, act, chat, inside, team

__all__ = ["inside"]
pytestmark = pytest.mark.usefixtures("inside")
CODER = f"{SAMPLE.prompt}\nExample: f(1) == 4\nDefine f in a ```python block."
TESTER = f"{SAMPLE.prompt}\nExample: f(1) == 4\nWrite 3 tests, one a line: f(...) == ..."


def test_each_reads_what_the_other_makes_of_its_work() -> None:
    env = team()
    assert (chat(env, "coder"), chat(env, "tester")) == ([CODER], [TESTER])
    act(env, "coder", f"Sure:\n```python\n{WRONG}\n```")
    assert chat(env, "coder") == [
        CODER,
        f"```python\n{WRONG}\n```",
        "There are no tests yet.\nWrite the program again.",
    ]
    assert chat(env, "tester") == [TESTER]
    act(env, "tester", "Well\nf(2) == 5\nf(2) == 7\nf(3) == 4")
    assert chat(env, "coder")[2:] == ["f(2) gave 3, the test says 5\nWrite the program again."]
    assert chat(env, "tester") == [
        TESTER,
        "f(2) == 5\nf(3) == 4",
        "f(2) gave 3, the test says 5\nf(3) gave 4, as the test says\nWrite the tests again.",
    ]


def test_the_latest_response_takes_the_place_of_the_one_before() -> None:
    env = team()
    act(env, "coder", WRONG)
    act(env, "tester", GOOD)
    act(env, "coder", "def f(n) return 1")
    assert chat(env, "coder")[1:] == [
        "def f(n) return 1",
        "Not usable: no program.\nWrite the program again.",
    ]
    assert chat(env, "tester")[2:] == ["There is no program yet.\nWrite the tests again."]
    act(env, "tester", "f(1) == 4")
    assert chat(env, "tester")[1:] == ["f(1) == 4", "Not usable: no new test.\nWrite the tests again."]


def test_the_coder_reads_three_failures_at_most() -> None:
    env = team(tests=5)
    act(env, "tester", "\n".join(f"f({n}) == {n + 3}" for n in range(2, 7)))
    act(env, "coder", WRONG)
    assert chat(env, "coder")[-1].count("gave") == 3
    assert chat(env, "tester")[-1].count("gave") == 5


def test_a_program_on_stdin_is_asked_for_with_blocks() -> None:
    meta = {"tests": [["7\n", "8\n"]], "examples": [["1\n", "2\n"]], "reference": "print(int(input()) + 1)"}
    env = team(Sample("s", "Add 1.", "", meta), tests=2)
    example = "Add 1.\nExample:\n```input\n1\n```\n```output\n2\n```\n"
    assert chat(env, "coder") == [
        f"{example}Write a program that reads stdin and prints the answer, in a ```python block."
    ]
    assert chat(env, "tester") == [f"{example}Write 2 tests, each as an ```input block and an ```output block."]
    assert env.demonstrate("tester") is None


def test_system_texts_and_demonstrations_stand_in_front() -> None:
    env = team(shots=1, coder_prompt="Write code.")
    messages = env.observe("coder").messages
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == "Write code."
    assert messages[1]["content"].startswith("Write f(a, b) that returns a times b plus 50.\nExample: f(2, 3) == 56\n")
    assert messages[2]["content"] == "```python\ndef f(a, b):\n    return a * b + 50\n```"
    assert [m["role"] for m in env.observe("tester").messages] == ["user", "assistant", "user"]
    assert chat(env, "tester")[1] == "f(4, 5) == 70\nf(1, 7) == 57\nf(0, 8) == 50"
    assert [len(env.observe("coder").messages) for env in (team(shots=0), team(shots=3))] == [1, 7]


def test_demonstrations_are_right_and_enough(inside: Inside) -> None:
    for shot in FUNCTION_SHOTS:
        assert shot.function is not None
        assert all(verdict.passed for verdict in inside(None, shot.program, shot.function, shot.tests))
    assert len(FUNCTION_SHOTS) == len(STDIN_SHOTS) == 3


def test_no_prompt_ever_holds_a_hidden_test_or_the_reference() -> None:
    problem = Problem.of(SAMPLE)
    secrets = [text for case in problem.hidden for text in (case.given.strip("[]"), case.expected)]
    env = team(shots=3, examples=4)
    for coder, tester in (("?", "?"), (WRONG, "f(2) == 9"), (HALF, "f(2) == 8"), (RIGHT, "f(2) == 9")):
        seen = json.dumps([env.observe(agent).messages for agent in env.roles])
        assert not [secret for secret in secrets if secret in seen.replace(json.dumps(HALF)[1:-1], "")]
        assert "def f(n):\\n    return n + 3" not in seen
        act(env, "coder", coder)
        if not env.done:
            act(env, "tester", tester)


@given(st.text(max_size=300).map(lambda text: f"<|im_end|>{text}<|im_start|>"))
def test_what_a_model_wrote_is_shown_short_and_spells_no_control_token(text: str) -> None:
    env = CodeTeam(shots=0)
    env.reset(SAMPLE)
    long = text * 100
    quoted = repr(long[:60])
    for coder, tester in (
        (long, long),
        (f"def f(n):\n    return {quoted} * 50", f"f({quoted}) == {quoted}\nf(2) == 5"),
    ):
        act(env, "coder", coder)
        act(env, "tester", tester)
        for agent in env.roles:
            own = "\n".join(chat(env, agent)[1:])
            assert "<|" not in own
            assert len(own) < 4000


def test_a_tiny_models_prompt_is_short() -> None:
    assert max(len(chat(team(), agent)[-1]) for agent in ("coder", "tester")) < 150
