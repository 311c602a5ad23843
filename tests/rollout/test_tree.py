from __future__ import annotations

from collections import Counter

import pytest

from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.selection import First
from atgrpo.rollout.tree import TreeSampler
from tests.rollout.helpers import Played, play, prompt_of, table

ONE_TURN = table({"a:": ["1/0", "3/0", "2/0"], "b:a3": ["0/.1", "0/.2", "-1/9"]})
SINGLE = {"a": "pa"}


def request_sizes(played: Played) -> list[list[int]]:
    return [[request.n for request in requests] for requests in played.rounds]


def test_k_candidates_are_one_request_of_one_prompt() -> None:
    played = play(TreeSampler(turns=1, branches=3), ONE_TURN)
    assert request_sizes(played) == [[3], [3]]
    turns = played.rollout.turns
    assert [prompt_of(turn) for turn in turns] == ["a:"] * 3 + ["b:a3"] * 3
    assert [(t.key.agent, t.key.branch, t.policy, t.key.node) for t in turns] == [
        (agent, branch, f"p{agent}", 0) for agent in "ab" for branch in range(3)
    ]


def test_the_second_agent_sees_the_firsts_chosen_result_of_the_same_turn_and_is_paid_for_its_own_actions() -> None:
    played = play(TreeSampler(turns=1, branches=3), ONE_TURN)
    assert played.prompts == [["a:"], ["b:a3"]]
    assert played.credits == {("a", 0): [1.0, 3.0, 2.0], ("b", 0): [3.1, 3.2, 11.0]}
    assert [turn.action.value for turn in played.rollout.turns[3:]] == [(0.0, 0.1), (0.0, 0.2), (-1.0, 9.0)]


@pytest.mark.parametrize(
    ("alpha", "expected"), [(1.0, [1.2, 1.0, 1.5]), (0.5, [0.7, 0.5, 1.0]), (0.0, [0.2, 0.0, 0.5])]
)
def test_every_candidate_is_paid_alpha_times_team_plus_its_own_local(alpha: float, expected: list[float]) -> None:
    played = play(TreeSampler(turns=1, branches=3, alpha=alpha), table({"a:": ["1/.2", "1/0", "1/.5"]}), agents=SINGLE)
    assert played.credits["a", 0] == pytest.approx(expected)
    assert [(t.rewards.team, t.rewards.local) for t in played.rollout.turns] == [(1.0, 0.2), (1.0, 0.0), (1.0, 0.5)]


def test_the_best_is_kept_and_the_next_turn_starts_from_it() -> None:
    script = table(
        {"a:": ["1/0", "2/0"], "b:a2": ["5/0", "4/0"], "a:a2,b5": ["0/0", "0/1"], "b:a2,b5,a0": ["1/0", "0/0"]}
    )
    played = play(TreeSampler(turns=2, branches=2), script)
    assert [turn.selected for turn in played.rollout.turns] == [False, True, True, False, False, True, True, False]
    assert played.rollout.outcome == 0.8
    assert played.rollout.success_by_turn == (0.7, 0.8)
    assert played.rollout.observations["b", 1].messages[-1]["content"] == "b:a2,b5,a0"


def test_the_selection_rule_is_asked_with_the_credits() -> None:
    script = table({"a:": ["1/0", "3/0"], "b:a1": ["0/0", "0/0"]})
    assert play(TreeSampler(turns=1, branches=2, selection=First()), script).prompts == [["a:"], ["b:a1"]]


def test_a_candidate_without_a_judgement_has_no_credit_and_is_not_kept() -> None:
    script = table({"a:": ["?/9", "-5/?", "-3/0"], "b:a-3": ["?/0", "?/0", "?/0"]})
    played = play(TreeSampler(turns=1, branches=3), script)
    assert played.credits == {("a", 0): [None, None, -3.0], ("b", 0): [None, None, None]}
    assert [turn.selected for turn in played.rollout.turns[:3]] == [False, False, True]
    assert sum(turn.selected for turn in played.rollout.turns[3:]) == 1


def test_ties_are_spread_over_the_branches_and_fixed_by_the_seed() -> None:
    sampler, script = TreeSampler(turns=1, branches=3), table({"a:": ["1/0"] * 3})

    def kept(tree: int) -> int:
        turns = play(sampler, script, agents=SINGLE, tree=tree).rollout.turns
        return next(turn.key.branch for turn in turns if turn.selected)

    choices = [kept(tree) for tree in range(300)]
    assert choices == [kept(tree) for tree in range(300)]
    assert all(70 < count < 130 for count in Counter(choices).values())


def test_done_at_reset_gives_no_rows() -> None:
    for sampler in (TreeSampler(turns=2), ParallelSampler(turns=2, trajectories=3)):
        played = play(sampler, table({}), goal=0)
        assert played.rounds == []
        assert played.rollout.turns == ()
        assert played.rollout.success_by_turn == (0.0, 0.0)


def test_a_selected_state_that_is_done_ends_the_tree_before_the_next_agent() -> None:
    played = play(TreeSampler(turns=3, branches=2), table({"a:": ["1/0", "2/0"]}), goal=2)
    assert played.prompts == [["a:"]]
    assert [turn.done for turn in played.rollout.turns] == [False, True]
    assert played.rollout.success_by_turn == (0.2, 0.2, 0.2)


def test_a_done_state_that_is_not_selected_ends_nothing() -> None:
    script = table({"a:": ["1/0", "2/-5"], "b:a1": ["0/0", "0/0"]})
    played = play(TreeSampler(turns=1, branches=2), script, goal=2)
    assert played.prompts == [["a:"], ["b:a1"]]
    assert [turn.done for turn in played.rollout.turns] == [False, True, False, False]


def test_branches_share_nothing_and_leave_the_root_as_it_was() -> None:
    # Were the list shared, b's prompt would show the losers' numbers and levels would add up over branches.
    played = play(TreeSampler(turns=1, branches=3), ONE_TURN)
    assert [turn.rewards.team for turn in played.rollout.turns] == [1, 3, 2, 3, 3, 2]
    assert played.root.log == []


def test_one_candidate_makes_the_tree_a_chain_equal_to_a_trajectory() -> None:
    script = table({"a:": ["1/.5"], "b:a1": ["2/?"], "a:a1,b2": ["?/0"], "b:a1,b2,a0": ["-1/1"]})
    tree = play(TreeSampler(turns=2, branches=1), script)
    parallel = play(ParallelSampler(turns=2, trajectories=1), script)
    assert tree.rollout == parallel.rollout
    assert len(tree.rollout.turns) == 4
    assert tree.prompts == parallel.prompts


def test_agents_in_parallel_see_the_turns_start_and_are_merged_afterwards() -> None:
    script = table({"a:": ["1/0", "2/0"], "b:": ["4/0", "3/0"], "a:a2,b4": ["0/1", "0/0"], "b:a2,b4": ["0/0", "1/0"]})
    played = play(TreeSampler(turns=2, branches=2, order="parallel"), script)
    assert played.prompts == [["a:", "b:"], ["a:a2,b4", "b:a2,b4"]]
    assert played.credits["b", 0] == [4.0, 3.0]
    assert played.rollout.outcome == 0.7
    assert played.rollout.success_by_turn == (0.6, 0.7)
    assert played.root.log == []


def test_an_overlong_prompt_ends_the_tree_uncut_and_is_counted() -> None:
    script = table({"a:": ["1/0", "2/0"], "b:a2": ["1/0", "0/0"]})
    played = play(TreeSampler(turns=2, branches=2), script, max_prompt_tokens=4)
    assert played.prompts == [["a:"], ["b:a2"]]  # the next one, "a:a2,b1", has 7
    assert played.rollout.overlong
    assert played.rollout.success_by_turn == (0.3, 0.3)
    assert not play(TreeSampler(turns=1, branches=2), script, max_prompt_tokens=4).rollout.overlong


def test_the_limit_holds_for_each_roles_rendered_prompt() -> None:
    script = table({"a:": ["1/0", "2/0"]})
    played = play(TreeSampler(turns=1, branches=2), script, max_prompt_tokens=3)
    assert played.prompts == [["a:"]]
    assert played.rollout.overlong
    assert {turn.key.agent for turn in played.rollout.turns} == {"a"}


def test_branches_and_lengths_by_agent() -> None:
    script = table({"a:": ["1/0"], "b:a1": ["2/0", "3/0", "1/0"]})
    sampler = TreeSampler(turns=1, branches={"a": 1, "b": 3}, max_tokens={"a": 9, "b": 3}, temperature=0.7)
    played = play(sampler, script)
    assert request_sizes(played) == [[1], [3]]
    assert [[r.sampling.max_tokens for r in requests] for requests in played.rounds] == [[9], [3]]
    assert {r.sampling.temperature for requests in played.rounds for r in requests} == {0.7}
    assert sampler.responses("b") == 3


@pytest.mark.parametrize("setting", ["branches", "max_tokens"])
def test_a_setting_by_agent_must_name_every_agent(setting: str) -> None:
    with pytest.raises(ValueError, match=rf"{setting} for \['a'\], expected one for agent 'b' too"):
        play(TreeSampler(turns=1, **{"branches": 3, setting: {"a": 3}}), ONE_TURN)


def test_requests_have_streams_of_their_own() -> None:
    script = table({"a:": ["0/0"] * 2, "b:a0": ["0/0"] * 2, "a:a0,b0": ["0/0"] * 2, "b:a0,b0,a0": ["0/0"] * 2})

    def seeds(**settings: int) -> list[int]:
        played = play(TreeSampler(turns=2, branches=2), script, **settings)
        return [request.seed for requests in played.rounds for request in requests]

    assert seeds(seed=1) == seeds(seed=1)
    drawn = seeds() + seeds(seed=1) + seeds(tree=1)
    assert len(set(drawn)) == len(drawn) == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"credit": "outcome"}, "'outcome' and 'return_to_go' need sampler=parallel"),
        ({"credit": "return_to_go"}, "need sampler=parallel"),
        ({"credit": "continuation", "order": "parallel"}, "got order='parallel', expected 'sequence'"),
        ({"turns": 0}, "got turns=0, expected at least 1"),
        ({"order": "random"}, "got order='random', expected 'sequence' or 'parallel'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeSampler(**settings)
