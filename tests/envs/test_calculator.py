from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.calculator import Expressions
from atgrpo.envs.calculator import Calculator
from atgrpo.training.team import check_roles
from atgrpo.types import Sample, StepResult

SAMPLE = Sample("s", "12*7=", "84", {"expression": "12*7"})
HELDOUT = Expressions(train_size=8).split("heldout")


def team(sample: Sample = SAMPLE, **options: object) -> Calculator:
    env = Calculator(**{"solver_prompt": "", "checker_prompt": "", **options})  # type: ignore[arg-type]
    env.reset(sample)
    return env


def act(env: Calculator, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def chat(env: Calculator, agent: str = "solver") -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in env.observe(agent).messages]


def view(env: Calculator) -> tuple[object, ...]:
    return (*(chat(env, role) for role in env.roles), env.done, env.success, env.demonstrate("solver"))


def shown_result(env: Calculator, call: str = "calc(12*7)") -> str:
    act(env, "solver", call)
    return chat(env)[-1][1]


@pytest.mark.parametrize(
    ("text", "team_reward", "local_reward", "done"),
    [
        ("84", 1.0, 0.0, True),
        (" 84.0\n", 1.0, 0.0, True),
        (r"12*7 is \boxed{80}, no: \boxed{84}", 1.0, 0.0, True),
        (r"calc(12*7) gives \boxed{84}", 1.0, 0.0, True),
        ("85", 0.0, 0.0, True),
        (r"\boxed{84} or \boxed{85}", 0.0, 0.0, True),
        ("calc(12*7)", 0.0, 0.0, False),
        (" calc( 12 * 7 )\n", 0.0, 0.0, False),
        ("calc(1)", 0.0, 0.0, False),
        ("calc(12*)", 0.0, -1.0, False),
        ("calc(1/0)", 0.0, -1.0, False),
        ("calc(12*7) calc(84)", 0.0, -1.0, False),
        ("calc(12*7", 0.0, -1.0, False),
        ("12*7", 0.0, -1.0, False),
        ("it is 84", 0.0, -1.0, False),
        ("#### 84", 0.0, -1.0, False),
        (r"\boxed{12*7}", 0.0, -1.0, False),
        (r"84 \boxed{}", 0.0, -1.0, False),
        ("", 0.0, -1.0, False),
    ],
)
def test_a_response_is_a_call_an_answer_or_invalid(
    text: str, team_reward: float, local_reward: float, done: bool
) -> None:
    env = team()
    result = act(env, "solver", text)
    assert (result.team_reward, result.local_reward, result.done) == (team_reward, local_reward, done)
    assert (env.success, env.done) == (team_reward, done)
    assert env.parse("solver", "84").valid
    assert result.info == {"tool": text.strip().startswith("calc") and not done and local_reward == 0.0}


def test_a_call_is_answered_in_a_turn_of_its_own_that_shows_the_result() -> None:
    env = team(solver_prompt="Call or answer.")
    assert chat(env) == [("system", "Call or answer."), ("user", "12*7=")]
    act(env, "solver", " calc( 12 * 7 )")
    assert chat(env)[1:] == [("user", "12*7="), ("assistant", "calc(12*7)"), ("user", "tool: 84")]
    assert act(env, "solver", "84") == StepResult(1.0, 0.0, done=True, info={"tool": False})


def test_a_call_and_an_answer_at_once_that_lead_to_the_same_are_paid_the_same() -> None:
    at_once, called = team(), team()
    direct = act(at_once, "solver", "84")
    paid = [act(called, "solver", text) for text in ("calc(12*7)", "84")]
    assert (direct.team_reward, direct.local_reward) == (1.0, 0.0)
    assert (paid[-1].team_reward, [r.local_reward for r in paid]) == (1.0, [0.0, 0.0])
    assert not at_once.step_rewards_complete


def test_calls_beyond_the_limit_are_invalid_and_give_no_result() -> None:
    env = team(max_calls=2)
    assert [act(env, "solver", f"calc({i})").local_reward for i in range(4)] == [0.0, 0.0, -1.0, -1.0]
    assert chat(env)[-1] == ("user", "error: no calls left")
    failed = team()
    assert [act(failed, "solver", text).local_reward for text in ("calc(1/0)", "calc(12*7)")] == [-1.0, 0.0]


def test_a_wrong_answer_ends_the_episode_for_good() -> None:
    env = team()
    act(env, "solver", "85")
    with pytest.raises(ValueError, match="got a finished episode, expected an open one"):
        act(env, "solver", "84")


def test_turns_that_run_out_without_an_answer_are_no_success() -> None:
    env = team()
    act(env, "solver", "calc(12*7)")
    act(env, "solver", "hm")
    assert (env.done, env.success) == (False, 0.0)


def test_unreadable_text_is_shown_cut_and_spells_no_control_token() -> None:
    env = team()
    act(env, "solver", "<|im_end|>" + "x" * 100)
    said = chat(env)[1][1]
    assert len(said) <= 40
    assert "<|" not in said
    act(env, "solver", " ")
    assert chat(env)[1:] == [
        ("assistant", said),
        ("user", "error: no number"),
        ("assistant", "?"),
        ("user", "error: no number"),
    ]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [("12*7", "48"), ("10*12", "021"), ("1-11", "-01"), ("1/8", "521.0"), ("1/3", "3/1")],
)
def test_the_trap_writes_the_digits_from_the_last_to_the_first(expression: str, shown: str) -> None:
    env = team(form="reversed")
    assert shown_result(env, f"calc({expression})") == f"tool: {shown}"
    assert env.demonstrate("solver") == {"48": "84", "021": "120", "-01": "-10", "521.0": "0.125", "3/1": "1/3"}[shown]


def test_an_unreliable_tool_is_wrong_as_often_as_it_says_and_always_by_a_little() -> None:
    results = [
        shown_result(team(Sample(f"s{i}", "12*7=", "84"), error_rate=0.3)).removeprefix("tool: ") for i in range(1000)
    ]
    wrong = [r for r in results if r != "84"]
    assert 0.25 < len(wrong) / 1000 < 0.35
    assert set(wrong) == {"74", "82", "83", "85", "86", "94"}
    assert shown_result(team(error_rate=0.0)) == "tool: 84"
    assert shown_result(team(error_rate=1.0)) != "tool: 84"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=6), st.integers(1, 999))
def test_the_same_call_on_the_same_sample_always_has_the_same_result(name: str, number: int) -> None:
    sample = Sample(name, "12*7=", "84")
    env = team(sample, error_rate=0.5, checker=True)
    results = {shown_result(env.fork(), f"calc({number} *7)"), shown_result(env.fork(), f"calc( {number}*7)")}
    act(env, "checker", f"calc({number}*7)")
    results.add(chat(env, "checker")[-1][1])
    results.add(shown_result(team(sample, error_rate=0.5), f"calc({number}*7)"))
    assert len(results) == 1


def test_with_a_checker_only_its_answer_ends_and_the_latest_answer_counts() -> None:
    env = team(checker=True)
    assert act(env, "solver", "85") == StepResult(0.0, 0.0, done=False, info={"tool": False})
    assert chat(env, "checker") == [("user", "12*7=\nsolver: 85")]
    act(env, "checker", "calc(12*7)")
    assert chat(env) == [("user", "12*7="), ("assistant", "85"), ("user", "checker: calc(12*7)\ntool: 84")]
    assert act(env, "solver", "84").team_reward == 1.0
    assert chat(env, "checker")[1:] == [("assistant", "calc(12*7)"), ("user", "tool: 84\nsolver: 84")]
    assert act(env, "checker", "oh").team_reward == 1.0
    assert act(env, "checker", "83") == StepResult(0.0, 0.0, done=True, info={"tool": False})
    assert env.success == 0.0


def test_a_solver_that_repeats_itself_before_its_checker_sees_the_problem_again() -> None:
    env = team(checker=True)
    act(env, "solver", "85")
    assert chat(env) == [("user", "12*7="), ("assistant", "85"), ("user", "12*7=")]


def test_a_team_whose_roles_and_setting_do_not_fit_is_refused_at_the_start() -> None:
    check_roles({"solver": "p"}, Calculator())
    check_roles({"solver": "p", "checker": "p"}, Calculator(checker=True))
    with pytest.raises(ValueError, match="agents: got checker, expected roles of the task: solver"):
        check_roles({"solver": "p", "checker": "p"}, Calculator())
    assert Calculator().notes(["solver"]) == Calculator(checker=True).notes(["solver", "checker"]) == ()
    with pytest.raises(ValueError, match=r"agents: got solver, expected checker too.*env\.checker=false"):
        Calculator(checker=True).notes(["solver"])


TEXTS = st.sampled_from(["calc(12*7)", "calc(5)", "calc(", "84", r"\boxed{84}", "85", "", "x"])
MOVES = st.lists(st.tuples(st.sampled_from(["solver", "checker"]), TEXTS), max_size=6)


@settings(max_examples=80, deadline=None)
@given(MOVES, MOVES, st.sampled_from(["plain", "reversed"]), st.sampled_from([0.0, 0.5]))
def test_stepping_a_fork_leaves_its_parent_and_its_sibling_as_they_were(
    before: list[tuple[str, str]], after: list[tuple[str, str]], form: str, error_rate: float
) -> None:
    parent = team(checker=True, form=form, error_rate=error_rate)
    for agent, text in before:
        if not parent.done:
            act(parent, agent, text)
    seen = view(parent)
    fork, sibling = parent.fork(), parent.fork()
    for agent, text in after:
        if not fork.done:
            result = act(fork, agent, text)
            assert result == act(sibling, agent, text)
    assert view(parent) == seen
    assert view(fork) == view(sibling)


@settings(max_examples=80, deadline=None)
@given(MOVES)
def test_success_is_a_right_answer_only_and_no_step_earns_anything_by_itself(moves: list[tuple[str, str]]) -> None:
    env = team(checker=True)
    latest = ""
    for agent, text in moves:
        if env.done:
            break
        result = act(env, agent, text)
        latest = text if text.endswith(("84", "85", "}")) else latest
        assert env.success == result.team_reward == float("84" in latest)
        assert result.local_reward in (0.0, -1.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 255), st.booleans(), st.sampled_from(["plain", "reversed"]), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_instance_is_solved_by_its_demonstration(index: int, checker: bool, form: str, calls: float) -> None:
    env = team(HELDOUT[index], checker=checker, form=form, demonstrated_calls=calls)
    for _ in range(2):
        for agent in ("solver", "checker")[: 1 + checker]:
            said = env.demonstrate(agent)
            if said is not None:
                assert len(said) < 16
                assert act(env, agent, said).local_reward == 0.0
    assert env.success == 1.0
    assert env.done or calls == 0.5


def test_about_the_set_share_of_the_samples_demonstrates_a_call() -> None:
    for share in (0.0, 0.25, 0.5, 1.0):
        calls = [str(team(s, demonstrated_calls=share).demonstrate("solver")).startswith("calc(") for s in HELDOUT]
        assert abs(sum(calls) / len(calls) - share) < 0.08
    assert team(Sample("s", "12*7=", "84"), demonstrated_calls=1.0).demonstrate("solver") == "84"


def test_the_set_share_of_the_demonstrations_repeats_a_reversed_result_as_it_stands() -> None:
    said = []
    for sample in HELDOUT:
        env = team(sample, form="reversed", demonstrated_calls=1.0, demonstrated_misreadings=0.75)
        shown = shown_result(env, f"calc({sample.meta['expression']})").removeprefix("tool: ")
        assert env.demonstrate("solver") in (sample.answer, shown)
        assert shown == sample.answer[::-1]
        said.append(env.demonstrate("solver") == shown)
    assert 0.67 < sum(said) / len(said) < 0.85  # palindromes are both


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 255))
def test_the_gold_answer_stands_in_no_prompt_before_it_was_found(index: int) -> None:
    sample = HELDOUT[index]
    env = Calculator(checker=True)
    env.reset(sample)
    for agent, text in (("solver", "calc(1+1)"), ("checker", "hm"), ("solver", "3"), ("checker", "calc(")):
        for content in (message["content"] for role in env.roles for message in env.observe(role).messages):
            assert sample.answer not in re.findall(r"\d+", content)
        act(env, agent, text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_calls": 0}, "max_calls got 0, expected at least 1"),
        ({"error_rate": 1.5}, r"error_rate got 1.5, expected 0 to 1"),
        ({"demonstrated_calls": -0.1}, r"demonstrated_calls got -0.1, expected 0 to 1"),
        ({"demonstrated_misreadings": 2}, r"demonstrated_misreadings got 2, expected 0 to 1"),
        ({"form": "roman"}, r"form got 'roman', expected one of \('plain', 'reversed'\)"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Calculator(**options)  # type: ignore[arg-type]


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="expected reset first"):
        Calculator().observe("solver")
    with pytest.raises(ValueError, match="answer 'red', expected a number"):
        team(Sample("s", "?", "red"))
    with pytest.raises(ValueError, match=r"agent got 'checker', expected one of \('solver',\)"):
        team().observe("checker")
    env = team(checker=True)
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("checker", env.parse("solver", "84"))
