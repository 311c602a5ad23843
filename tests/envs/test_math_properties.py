from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.word_problems import NAMES, TEMPLATES, Template, WordProblems, split_of
from atgrpo.envs.math import SINGLE_CALL, TWO_CALLS, Demonstration, MathTeam
from atgrpo.types import Sample
from tests.envs.helpers import act, chat, team

HELDOUT = WordProblems([2, 3, 4], train_size=8).split("heldout")
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["tool", "reasoner"]),
        st.sampled_from(
            ["3*5+4", "3+5+4", "1/0", "x", "", r"\boxed{19}", r"\boxed{12}", r"\boxed{?}", r"\boxed{nuts}"]
        ),
    ),
    max_size=5,
)


def view(env: MathTeam) -> tuple[object, ...]:
    return (chat(env, "tool"), chat(env, "reasoner"), env.done, env.success)


@settings(max_examples=60, deadline=None)
@given(MOVES, MOVES)
def test_stepping_a_fork_leaves_its_parent_and_its_sibling_as_they_were(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    parent = team(shots=1)
    for agent, text in before:
        if not parent.done:
            act(parent, agent, text)
    seen = view(parent)
    fork, sibling = parent.fork(), parent.fork()
    for agent, text in after:
        if not fork.done:
            act(fork, agent, text)
    assert view(parent) == seen
    assert view(sibling) == seen


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_equal_actions_give_equal_results_and_observing_changes_nothing(moves: list[tuple[str, str]]) -> None:
    one, other = team(shots=0), team(shots=0)
    for agent, text in moves:
        if one.done:
            break
        view(one)
        assert act(one, agent, text) == act(other, agent, text)
        assert view(one) == view(other)
        assert one.success == (1.0 if one.success else 0.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 255), st.sampled_from([None, 2]))
def test_the_gold_answer_stands_in_no_message_about_the_problem(index: int, bound: int | None) -> None:
    sample = HELDOUT[index]
    env = team(sample, shots=0, max_operations=bound)
    wrong = str(int(sample.answer) + 1)
    for agent, text in (("tool", wrong), ("reasoner", rf"\boxed{{{wrong}0}}"), ("tool", "x"), ("reasoner", "y")):
        for _, content in chat(env, agent):
            assert sample.answer not in re.findall(r"\d+", content)
        act(env, agent, text)


def test_repeating_itself_earns_no_more_than_standing_still() -> None:
    env = team()
    rewards = [
        act(env, agent, text).team_reward for agent, text in [("tool", "3*5"), ("reasoner", r"\boxed{15.5}")] * 3
    ]
    assert rewards == [0.0] * 6


CALLS = st.lists(st.sampled_from(["3*5", "15+4", "19-2", "17", "3+5", "4-2", "15+2", "19"]), max_size=12)


@settings(max_examples=60, deadline=None)
@given(CALLS, CALLS)
def test_progress_is_paid_once_however_often_the_tool_goes_back_and_forth(way: list[str], again: list[str]) -> None:
    gold = Sample("s", "Tom has 3 bags of 5 nuts, finds 4 and eats 2. How many nuts?", "17", {"expression": "3*5+4-2"})
    env = team(gold, max_operations=2)
    earned = [act(env, "tool", call).local_reward or 0.0 for call in way]
    assert 0.0 <= sum(earned) <= 1.0 + 1e-9
    there_and_back = [*reversed(way), *way]
    assert [act(env, "tool", call).local_reward for call in there_and_back] == [0.0] * len(there_and_back)
    earned += [act(env, "tool", call).local_reward or 0.0 for call in again]
    assert sum(earned) <= 1.0 + 1e-9
    assert env.success == float((way + there_and_back + again)[-1:] in (["17"], ["19-2"], ["15+2"]))


def _template_of(demonstration: Demonstration) -> tuple[Template, dict[str, int]]:
    for template in (template for templates in TEMPLATES.values() for template in templates):
        pattern = re.sub(r"\\\{([a-e])\\\}", r"(?P<\1>\\d+)", re.escape(template.text)).replace(
            r"\{n\}", r"(?P<n>\w+)", 1
        )
        if found := re.fullmatch(pattern.replace(r"\{n\}", r"\w+"), demonstration.prompt):
            assert found["n"] not in NAMES
            return template, {k: int(found[k]) for k in template.letters}
    raise AssertionError(f"{demonstration.prompt!r} is of no template")


@pytest.mark.parametrize("demonstration", [*SINGLE_CALL, *TWO_CALLS], ids=lambda demonstration: demonstration.prompt)
def test_demonstrations_are_of_the_training_side_and_never_a_sample(demonstration: Demonstration) -> None:
    template, numbers = _template_of(demonstration)
    assert split_of(template, numbers) == "train"
