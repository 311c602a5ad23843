from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from atgrpo.envs.code import CodeTeam
from atgrpo.rollout.tree import TreeSampler
from atgrpo.rollout.walk import Episode
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox
from atgrpo.types import Action, Completion, Sample, StepResult
from tests.envs.code_helpers import GOOD, HALF, RIGHT, SAMPLE, WRONG, Inside, act, chat, inside, team

__all__ = ["inside"]
pytestmark = pytest.mark.usefixtures("inside")


@pytest.mark.parametrize(
    ("text", "team_reward", "local_reward"),
    [
        (RIGHT, 1.0, 1.0),
        (f"I think\n```python\n{RIGHT}\n```\nbye", 1.0, 1.0),
        (HALF, 0.5, 0.5),
        (WRONG, 0.0, 0.0),
        ("def f(n): return n / 0", 0.0, 0.0),
        ("def f(): return 4", 0.0, 0.0),
        ("def g(n): return n + 3", 0.0, -1.0),
        ("def f(n) return n + 3", 0.0, -1.0),
        ("```python\n```", 0.0, -1.0),
        ("add three", 0.0, -1.0),
        ("", 0.0, -1.0),
    ],
)
def test_coder_is_paid_for_its_share_of_hidden_tests(text: str, team_reward: float, local_reward: float) -> None:
    env = team()
    assert env.parse("coder", text).valid is (local_reward >= 0)
    assert act(env, "coder", text) == StepResult(team_reward, local_reward, done=False)
    assert env.success == float(team_reward == 1)


@pytest.mark.parametrize(
    ("text", "local_reward"),
    [
        (GOOD, 1.0),
        ("assert f(2) == 5\n- `f(3) == 6`\nf(4)==7", 1.0),
        ("f(2) == 5", 1 / 3),
        ("f(2) == 5\nf(3) == 9", 1 / 3),
        ("f(2) == 9", 0.0),
        (f"{GOOD}\nf(5) == 0\nf(6) == 0", 1.0),
        (f"f(5) == 0\nf(6) == 0\n{GOOD}", 1 / 3),
        ("f(2) == 5\nf(2) == 5\nf(2.0) == 5\nf( 2 ) == 5", 1 / 3),
        ("f(2) == 5\nf(2) == 6", 1 / 3),
        ("f(2) == 5\nf(3) ==\nf(x) == 1\nhm", 1 / 3),
        ("f(1) == 4\nf(2) == 5", 1 / 3),
        ("f(1) == 4", -1.0),
        ("f(2) > 4", -1.0),
        ("f(1 + 1) == 5", -1.0),
        ("it adds three", -1.0),
        ("", -1.0),
    ],
)
def test_tester_is_paid_for_new_tests_that_the_reference_passes(text: str, local_reward: float) -> None:
    env = team()
    assert env.parse("tester", text).valid is (local_reward >= 0)
    assert act(env, "tester", text) == StepResult(0.0, pytest.approx(local_reward), done=False)


def test_the_episode_ends_when_the_program_passes_the_tests() -> None:
    env = team()
    assert not act(env, "coder", RIGHT).done
    assert act(env, "tester", GOOD) == StepResult(1.0, 1.0, done=True)
    assert (env.done, env.success) == (True, 1.0)


def test_agreement_on_what_is_wrong_ends_without_success() -> None:
    env = team()
    assert act(env, "tester", "f(2) == 3") == StepResult(0.0, 0.0, done=False)
    assert act(env, "coder", WRONG) == StepResult(0.0, 0.0, done=True)
    assert env.success == 0.0


def test_passing_half_of_the_hidden_tests_is_no_success() -> None:
    env = team()
    act(env, "coder", HALF)
    assert act(env, "tester", GOOD) == StepResult(0.5, 1.0, done=True)
    assert env.success == 0.0


def test_turns_that_run_out_are_no_success() -> None:
    env = team()
    for _ in range(4):
        assert act(env, "coder", "?").local_reward == -1.0
        assert act(env, "tester", "?").local_reward == -1.0
    assert (env.done, env.success) == (False, 0.0)


def test_the_team_reward_is_the_level_of_the_current_program_whoever_acts() -> None:
    env = team()
    assert act(env, "coder", HALF).team_reward == 0.5
    assert act(env, "tester", "f(2) == 9").team_reward == 0.5
    assert act(env, "coder", "none").team_reward == 0.0
    assert act(env, "tester", "none").team_reward == 0.0


@pytest.mark.parametrize(("agent", "good", "bad"), [("coder", RIGHT, WRONG), ("tester", GOOD, "f(2) == 0")])
def test_going_back_and_forth_earns_no_more_than_standing_still(agent: str, good: str, bad: str) -> None:
    def earned(*texts: str) -> float:
        env = team()
        rewards = [act(env, agent, text).local_reward for text in texts]
        assert None not in rewards
        return math.fsum(r for r in rewards if r is not None)

    assert earned(good, good, good) == earned(bad, good) == earned(good, bad, good, bad, good) == 1.0
    assert earned(good, "?", good) == 1.0
    assert earned(good, bad) == 0.0


@pytest.mark.parametrize("standing", [WRONG, HALF, RIGHT, "?"])
def test_a_malformed_response_is_never_better_than_an_honest_failure(standing: str) -> None:
    malformed, failure = team(), team()
    totals = []
    for env, text in ((malformed, "?"), (failure, WRONG)):
        act(env, "coder", standing)
        result = act(env, "coder", text)
        assert result.team_reward is not None
        assert result.local_reward is not None
        totals.append(result.team_reward + result.local_reward)
    assert totals[0] <= totals[1]
    assert totals[0] == -1.0


def test_a_failure_of_the_sandbox_is_no_reward_and_is_tried_again(inside: Inside) -> None:
    env = team()
    inside.broken = True
    result = act(env, "coder", RIGHT)
    assert (result.team_reward, result.local_reward, result.done) == (None, None, False)
    assert result.info == {"sandbox_error": "no room"}
    assert math.isnan(env.success)
    assert act(env, "tester", GOOD).local_reward is None
    assert chat(env, "coder")[-1].startswith("The tests could not be run.")
    inside.broken = False
    assert act(env, "coder", RIGHT) == StepResult(1.0, 1.0, done=True)
    assert env.success == 1.0


def test_a_sandbox_that_fails_on_the_tests_alone_leaves_the_success_known(inside: Inside) -> None:
    env = team()
    act(env, "coder", RIGHT)
    inside.broken = True
    assert act(env, "tester", GOOD).team_reward is None
    assert env.success == 1.0


@pytest.mark.parametrize("agents", [["coder", "tester"], ["coder"], ["tester"]])
def test_whoever_starts_a_run_reads_how_programs_are_kept_apart(agents: list[str]) -> None:
    sandbox = Sandbox(Limits(seconds=7))
    assert team(sandbox=sandbox).notes(agents) == (sandbox.describe(),)
    assert "; 7 s, " in sandbox.describe()


def test_without_a_reference_only_the_tester_goes_unpaid() -> None:
    sample = replace(SAMPLE, meta={key: value for key, value in SAMPLE.meta.items() if key != "reference"})
    env = team(sample)
    assert env.demonstrate("coder") is None
    assert act(env, "tester", GOOD) == StepResult(0.0, None, done=False)
    assert act(env, "tester", "none").local_reward == -1.0
    assert act(env, "coder", HALF) == StepResult(0.5, 0.5, done=False)


def test_demonstrations_parse_and_earn_everything() -> None:
    env = team()
    coder, tester = env.demonstrate("coder"), env.demonstrate("tester")
    assert coder == "```python\ndef f(n):\n    return n + 3\n```"
    assert tester == "f(20) == 23\nf(30) == 33\nf(40) == 43"
    assert act(env, "coder", coder).local_reward == 1.0
    assert act(env, "tester", tester) == StepResult(1.0, 1.0, done=True)
    assert team(examples=4).demonstrate("tester") is None


def test_forks_are_independent_and_share_what_was_run(inside: Inside) -> None:
    root = team()
    act(root, "coder", HALF)
    before = {agent: root.observe(agent) for agent in root.roles}
    forks = [root.fork() for _ in range(3)]
    for fork, text in zip(forks, (RIGHT, WRONG, "?"), strict=True):
        act(fork, "coder", text)
        act(fork, "tester", GOOD)
    assert [fork.success for fork in forks] == [1.0, 0.0, 0.0]
    assert [fork.done for fork in forks] == [True, False, False]
    assert {agent: root.observe(agent) for agent in root.roles} == before
    runs = len(inside.runs)
    again = root.fork()
    act(again, "coder", RIGHT)
    act(again, "tester", GOOD)
    assert len(inside.runs) == runs
    assert len(set(inside.runs)) == runs


@pytest.mark.parametrize("order", ["parallel", "sequence"])
def test_a_tree_is_played_in_either_order(order: Any, inside: Inside) -> None:
    env = team()
    sampler = TreeSampler(turns=2, order=order, branches=2, max_tokens=400)
    growth = sampler.grow(Episode(SAMPLE, 0, env, {"coder": "p", "tester": "p"}, lambda p, m: (len(m),), 0, 99))
    texts = {"coder": [WRONG, HALF], "tester": ["f(7001) == 7004", "none"]}
    asked, replies, agents = [], None, 0
    while True:
        try:
            requests = growth.send(replies)
        except StopIteration as end:
            rollout = end.value
            break
        asked.append(len(requests))
        replies = []
        for _ in requests:
            said = texts[env.roles[agents % 2]] if agents < 2 else [RIGHT, RIGHT]
            replies.append([Completion((1,), (-1.0,), text, "stop") for text in said])
            agents += 1
    assert asked[0] == (2 if order == "parallel" else 1)
    paid = {(t.key.agent, t.key.branch): (t.rewards.team, t.rewards.local) for t in rollout.turns if t.key.turn == 0}
    level = 0.0 if order == "parallel" else 0.5
    third = pytest.approx(1 / 3)
    assert paid == {
        ("coder", 0): (0.0, 0.0),
        ("coder", 1): (0.5, 0.5),
        ("tester", 0): (level, third),
        ("tester", 1): (level, -1.0),
    }
    assert rollout.outcome == 1.0
    assert len(set(inside.runs)) == len(inside.runs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tests": 0}, "tests got 0, expected at least 1"),
        ({"examples": -1}, "examples got -1, expected at least 0"),
        ({"shots": 4}, "shots got 4, expected 0 to 3"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CodeTeam(**settings)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"tests": []}, "got no tests, expected at least one"),
        ({"function": "no name", "tests": [[[1], 2]]}, "got function 'no name', expected the name of a function"),
        ({"function": "f", "tests": [[1, 2]]}, r"got \[1, 2\] in tests, expected \[list of arguments, result\]"),
        ({"tests": [[[1], 2]]}, r"got \[\[1\], 2\] in tests, expected \[stdin, stdout\]"),
        ({"tests": [["1", "2"]], "reference": 3}, "got reference int, expected a text"),
        ({"tests": [["1", "2" * 1_000_001]]}, "got 1000001 characters to expect, expected at most 1000000"),
    ],
)
def test_a_sample_that_is_no_coding_problem_is_refused(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        team(Sample("s", "p", "", meta))


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="environment got no sample, expected reset first"):
        CodeTeam().observe("coder")
    env = team()
    with pytest.raises(ValueError, match="agent got 'tool', expected one of"):
        env.observe("tool")
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("coder", env.parse("tester", GOOD))
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("coder", Action(None, False))
    act(env, "coder", RIGHT)
    act(env, "tester", GOOD)
    with pytest.raises(ValueError, match="step of 'coder' got a finished episode"):
        act(env, "coder", RIGHT)
