from __future__ import annotations

import functools
import inspect
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from atgrpo.data.reasoning_gym import ReasoningGym
from atgrpo.envs import reasoning_gym as gym
from atgrpo.envs.reasoning_gym import PYTHON, SYMPY, ReasoningGymTeam, is_harmless, read_answer
from atgrpo.types import Sample, StepResult


@functools.cache
def sample_of(task: str) -> Sample:
    return ReasoningGym(task, train_size=1, heldout_size=1, scorable_only=False).split("heldout")[0]


SAMPLE = sample_of("spell_backward")


def team(sample: Sample = SAMPLE, **settings: Any) -> ReasoningGymTeam:
    env = ReasoningGymTeam(**settings)
    env.reset(sample)
    return env


def act(env: ReasoningGymTeam, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def chat(env: ReasoningGymTeam, agent: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in env.observe(agent).messages]


def test_the_verifier_sees_the_proposed_answer_and_agreement_ends_the_episode() -> None:
    env = team(proposer_prompt="", verifier_prompt="Check.")
    assert chat(env, "proposer") == [("user", SAMPLE.prompt)]
    assert act(env, "proposer", f"I think <answer> {SAMPLE.answer} </answer>!") == StepResult(1.0, 1.0, done=False)
    assert env.success == 1.0
    assert chat(env, "verifier") == [
        ("system", "Check."),
        ("user", f"{SAMPLE.prompt}\nProposed answer: {SAMPLE.answer}"),
    ]
    assert act(env, "verifier", SAMPLE.answer) == StepResult(1.0, 1.0, done=True)
    assert (env.done, env.success) == (True, 1.0)


def test_the_verifiers_answer_counts_once_it_has_spoken_and_no_answer_costs_one() -> None:
    env = team()
    act(env, "proposer", SAMPLE.answer)
    assert act(env, "verifier", " \n ") == StepResult(0.0, -1.0, done=False)
    assert env.success == 0.0
    assert act(env, "proposer", SAMPLE.answer).team_reward == 1.0
    assert env.success == 0.0
    assert chat(env, "proposer")[1:] == [
        ("user", SAMPLE.prompt),
        ("assistant", f"<answer>{SAMPLE.answer}</answer>"),
        ("user", "The verifier's answer: ?"),
        ("assistant", f"<answer>{SAMPLE.answer}</answer>"),
        ("user", SAMPLE.prompt),
    ]


def test_two_that_say_nothing_do_not_agree() -> None:
    env = team()
    act(env, "proposer", "")
    assert not act(env, "verifier", "").done


def test_partial_scores_are_the_tasks_own_and_no_success() -> None:
    env = team(sample_of("countdown"))
    result = act(env, "proposer", "1+1")
    assert 0.0 < (result.team_reward or 0.0) < 1.0 and result.local_reward == result.team_reward
    assert env.success == 0.0


@pytest.mark.parametrize("task", ["rush_hour", "graph_color", "propositional_logic"])
def test_a_task_without_one_gold_answer_can_be_played(task: str) -> None:
    env = team(sample_of(task))
    result = act(env, "proposer", "<answer>nothing like it</answer>")
    assert result.team_reward is not None and result.team_reward < 1.0


def test_the_scorer_has_the_settings_of_the_data() -> None:
    data = ReasoningGym("puzzle24", train_size=1, heldout_size=1, scorable_only=False, min_value=4)
    (sample,) = data.split("heldout")
    answer = "4*6*1*1"  # two of its numbers are outside these settings, all are within the default ones
    assert (act(team(sample), "proposer", answer).team_reward or 0.0) < 1.0
    assert act(team(sample_of("puzzle24")), "proposer", answer).team_reward == 1.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>7</answer> or rather <answer>12</answer>", "12"),
        (r"\boxed{7} then \boxed{12}", "12"),
        (r"<answer>a</answer> \boxed{b}", "a"),
        ("first\n12\n\n", "12"),
        ("<answer>1 2\n3 4</answer>" + " tail" * 200, "1 2\n3 4"),
        ("<answer>7</answer> <answer>cut", "7"),
        ("<answer></answer>", None),
        (" \n", None),
        ("9" * 2001, None),
        ("1e99999999", None),
    ],
)
def test_the_last_answer_is_read(text: str, answer: str | None) -> None:
    assert read_answer(text) == answer


def test_a_scorer_that_crashes_gives_missing_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(answer: str, entry: dict[str, Any]) -> float:
        raise KeyError("board")

    for broken in (crash, lambda answer, entry: math.nan):
        monkeypatch.setattr(gym, "scorer", lambda sample, broken=broken: broken)
        env = team()
        result = act(env, "verifier", "x")
        assert (result.team_reward, result.local_reward, result.done) == (None, None, False)
        assert "judge_error" in result.info and math.isnan(env.success)


# Else a policy could dodge the penalty for a wrong answer with one that no scorer can read.
@pytest.mark.parametrize(("task", "text"), [("boxnet", "1"), ("boxnet", "null"), ("prime_factorization", "two")])
def test_a_scorer_that_crashes_on_the_models_answer_only_gives_nothing(task: str, text: str) -> None:
    env = team(sample_of(task))
    with pytest.raises((TypeError, AttributeError, ValueError)):
        env._score(text, {"answer": env._current.answer, "metadata": env._current.meta})
    assert act(env, "proposer", text) == StepResult(0.0, 0.0, done=False)
    assert env.success == 0.0


def test_a_score_that_is_no_number_for_the_models_answer_only_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gold = SAMPLE.answer
    monkeypatch.setattr(gym, "scorer", lambda sample: lambda answer, entry: 1.0 if answer == gold else math.nan)
    assert act(team(), "proposer", "x") == StepResult(0.0, 0.0, done=False)
    assert act(team(), "proposer", gold) == StepResult(1.0, 1.0, done=False)


@pytest.mark.parametrize("text", ["nan", "NaN", "n an", "(nan)", "nan+nani", "-nanj", "5 + nani"])
def test_nan_earns_nothing_where_comparing_with_it_would_earn_all(text: str) -> None:
    sample = sample_of("complex_arithmetic")
    assert act(team(sample), "proposer", text) == StepResult(0.0, 0.0, done=False)
    assert act(team(sample), "proposer", sample.answer).team_reward == 1.0


def test_every_scorer_that_evaluates_an_answer_is_known() -> None:
    """A new version of reasoning-gym may bring more of them."""
    evaluating = set()
    for task, (dataset, _) in DATASETS.items():
        if re.search(r"\beval\(|\bexec\(|parse_expr|sympify", inspect.getsource(dataset.score_answer)):
            evaluating.add(task)
    assert evaluating - {"number_sorting"} == PYTHON | SYMPY  # that one evaluates its own gold answer


@pytest.mark.parametrize("task", sorted(PYTHON | SYMPY))
def test_answers_of_the_tasks_pass_the_guard_and_score(task: str) -> None:
    sample = sample_of(task)
    assert act(team(sample), "proposer", f"<answer>{sample.answer}</answer>").team_reward == 1.0


HARMFUL = [
    "__import__('os').system('touch run')",
    "open('run', 'w')",
    "[x for x in (1, 2)]",
    "().__class__.__bases__",
    "entry['answer']",
    "'a' * 10 ** 9",
    "[0] * 10 ** 9",
    "9**9**9**9",
    "f'{open(1)}'",
    "1 << 10 ** 10",
    "(lambda: 1)()",
    "(a := 1)",
]


@pytest.mark.parametrize("text", HARMFUL)
def test_an_answer_that_would_run_or_cost_something_is_refused(text: str) -> None:
    assert not any(is_harmless(task, text) for task in PYTHON | SYMPY)


@pytest.mark.parametrize("text", [*HARMFUL, "oracle_answer"])
def test_what_is_refused_is_never_given_to_the_scorer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(answer: str, entry: dict[str, Any]) -> float:
        raise AssertionError(answer)

    monkeypatch.setattr(gym, "scorer", lambda sample: never)
    env = team(sample_of("string_insertion"))
    assert act(env, "proposer", f"<answer>{text}</answer>") == StepResult(0.0, 0.0, done=False)


def test_the_name_of_the_scorers_own_gold_answer_earns_nothing() -> None:
    sample = sample_of("string_insertion")
    env = team(sample)
    assert env._score("oracle_answer", {"answer": sample.answer, "metadata": {}}) > 0.0  # unguarded
    assert act(env, "proposer", "oracle_answer").team_reward == 0.0


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("3*x**20 - x**(1/2)/2 + C", True),
        ("x**21", False),
        ("(x + 1)**6", True),
        ("(x + 1)**7", False),
        ("(x**2)**2", False),
        ("sin(x)**2*exp(2*x)", True),
        ("cos(3*x + 6)**5/5 + C", True),
        ("sin(x)**7", False),
        ("(sin(x) + x)**3", False),
        ("sin(x, x)", False),
        ("eval(x)", False),
        ("5!", False),
        ("'x'", False),
        ("[1, 2]", False),
        ("x.real", False),
        ("+".join(["x**2"] * 8), True),
        ("+".join(["x**2"] * 9), False),
        ("+".join(["x"] * 101), False),
        ("1" * 13, False),
        ("oo - oo", False),
        ("zoo", False),
        ("nan", False),
    ],
)
def test_what_sympy_may_read(text: str, harmless: bool) -> None:
    assert is_harmless("simple_integration", text) is harmless
    assert is_harmless("spell_backward", text)


MOVES = st.lists(st.sampled_from([SAMPLE.answer, "x", "", "<answer>y</answer>", "<|im_end|>"]), max_size=5)


@given(MOVES, st.sampled_from([SAMPLE.answer, ""]))
def test_stepping_a_fork_leaves_its_parent_and_equal_actions_give_equal_results(moves: list[str], text: str) -> None:
    env = team()
    for i, move in enumerate(moves):
        if not env.done:
            act(env, env.roles[i % 2], move)
    seen = (chat(env, "proposer"), chat(env, "verifier"), env.done, env.success)
    assert all("<|" not in content for _, content in seen[0])
    if not env.done:
        assert act(env.fork(), "verifier", text) == act(env.fork(), "verifier", text)
    assert (chat(env, "proposer"), chat(env, "verifier"), env.done, env.success) == seen


def test_the_gold_answer_stands_in_no_prompt() -> None:
    env = team()
    act(env, "proposer", "zzz")
    assert all(SAMPLE.answer not in content for agent in env.roles for _, content in chat(env, agent))


def test_wrong_use_is_refused() -> None:
    with pytest.raises(ValueError, match="expected data=reasoning_gym"):
        team(Sample("s", "?", "!"))
    with pytest.raises(ValueError, match="limit got 0"):
        ReasoningGymTeam(limit=0)
    with pytest.raises(ValueError, match="expected reset first"):
        ReasoningGymTeam().observe("proposer")
    env = team()
    with pytest.raises(ValueError, match="agent got 'tool'"):
        env.observe("tool")
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("verifier", env.parse("proposer", "x"))
    act(env, "proposer", "x")
    act(env, "verifier", "x")
    with pytest.raises(ValueError, match="finished episode"):
        act(env, "proposer", "x")


def test_the_gold_answer_is_shown_for_imitation_where_there_is_one_to_read() -> None:
    env = team()
    for agent in env.roles:
        response = env.demonstrate(agent)
        assert response == f"<answer>{SAMPLE.answer}</answer>"
        assert act(env, agent, response).team_reward == 1.0
    for gold in (None, " ", "x" * 2001):
        own = {**SAMPLE.meta["reasoning_gym"], "answer": gold}
        assert team(replace(SAMPLE, meta={**SAMPLE.meta, "reasoning_gym": own})).demonstrate("proposer") is None
