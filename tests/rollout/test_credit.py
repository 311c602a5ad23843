"""Every credit rule worked out by hand. A response is "gain/local", the team's level is the sum of gains."""

from __future__ import annotations

import pytest

from atgrpo.rollout.credit import ParallelCredit
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.selection import First
from atgrpo.rollout.tree import TreeSampler
from atgrpo.types import Request
from tests.rollout.helpers import Played, play, prompt_of, table

SINGLE = {"a": "pa"}
# b answers a1 with 5 and a2 with -1: by its own step a2 looks better, in the end a1 is.
LURE = {"a:": ["1/.1", "2/.2"], "b:a1": ["5/0", "0/1"], "b:a2": ["-1/.3", "3/0"]}
TRAJECTORY = {"a:": ["1/.1"], "b:a1": ["1/.2"], "a:a1,b1": ["1/.3"], "b:a1,b1,a1": ["2/.4"]}


def approx(credits: dict[tuple[str, int], list[float | None]]) -> dict[tuple[str, int], object]:
    return {key: [None if c is None else pytest.approx(c) for c in values] for key, values in credits.items()}


def test_step_takes_the_level_right_after_the_step() -> None:
    played = play(TreeSampler(turns=1, branches=2), table(LURE))
    assert played.credits == approx({("a", 0): [1.1, 2.2], ("b", 0): [1.3, 5.0]})


def test_continuation_takes_the_level_at_the_end_of_a_playout_and_the_own_local() -> None:
    played = play(TreeSampler(turns=1, branches=2, credit="continuation"), table(LURE))
    # a1 -> b5: level 6; a2 -> b-1: level 1. So a1 is kept, and b's candidates are the last step.
    assert played.credits == approx({("a", 0): [6.1, 1.2], ("b", 0): [6.0, 2.0]})
    assert played.prompts == [["a:"], ["b:a1", "b:a2"], ["b:a1"]]
    assert [[r.n for r in requests] for requests in played.rounds] == [[2], [1, 1], [2]]


def test_equal_candidates_share_the_mean_of_their_playouts() -> None:
    ends = iter(["0/0", "4/0", "9/0"])  # what b says after a's three candidates, then b's own candidates

    def script(request: Request, i: int) -> str:
        if prompt_of(request) == "a:":
            return ["1/0", "1/0", "2/0"][i]
        return next(ends, "0/0")

    played = play(TreeSampler(turns=1, branches=3, credit="continuation"), script)
    # a1 twice: levels 1 and 5, mean 3; a2: level 11.
    assert played.credits["a", 0] == [3.0, 3.0, 11.0]


def test_playouts_that_are_not_trained_on_are_only_counted() -> None:
    rollout = play(TreeSampler(turns=1, branches=2, credit="continuation"), table(LURE)).rollout
    assert len(rollout.turns) == 4
    assert rollout.extra_tokens == len("5/0") + len("-1/.3")


def test_playouts_that_are_trained_on_form_groups_of_their_own() -> None:
    rollout = play(
        TreeSampler(turns=1, branches=2, credit="continuation", train_continuations=True), table(LURE)
    ).rollout
    assert rollout.extra_tokens == 0
    playouts = rollout.turns[4:]
    assert [(t.key.node, t.key.agent, t.key.turn, t.key.branch) for t in playouts] == [(1, "b", 0, 0), (1, "b", 0, 1)]
    assert [turn.rewards.credit for turn in playouts] == pytest.approx([6.0, 1.3])
    assert not any(turn.selected for turn in playouts)
    assert {turn.key.node for turn in rollout.turns[:4]} == {0}


def test_a_playout_over_several_steps_pays_each_of_them_the_level_at_its_end() -> None:
    script = table(
        {
            "a:": ["1/0", "0/0"],
            "a:a1": ["1/.5", "9/0"],
            "a:a0": ["0/0"],
            "a:a1,a1": ["1/.1", "0/0"],
            "a:a0,a0": ["0/0"],
            "a:a1,a9": ["-9/0", "0/0"],
        }
    )
    sampler = TreeSampler(turns=3, branches=2, credit="continuation", train_continuations=True)
    played = play(sampler, script, agents=SINGLE)
    # Playout of a1: +1, +1 -> 3. Second step: a1,a1 -> +1 -> 3.5; a1,a9 -> -9 -> 1. Third step: 3.1 and 2.
    assert played.credits == approx({("a", 0): [3.0, 0.0], ("a", 1): [3.5, 1.0], ("a", 2): [3.1, 2.0]})
    by_node = [(t.key.node, t.key.branch, t.key.turn, t.rewards.credit) for t in played.rollout.turns if t.key.node]
    assert by_node == [
        (1, 0, 1, 3.5),
        (1, 0, 2, 3.1),
        (1, 1, 1, 0.0),
        (1, 1, 2, 0.0),
        (2, 0, 2, 3.1),
        (2, 1, 2, 1.0),
    ]


def test_a_final_candidate_needs_no_playout() -> None:
    played = play(TreeSampler(turns=1, branches=2, credit="continuation"), table(LURE), goal=2)
    assert played.credits["a", 0] == approx({("a", 0): [6.1, 2.2]})["a", 0]
    assert played.prompts == [["a:"], ["b:a1"], ["b:a1"]]


def test_a_playout_that_could_not_be_judged_gives_no_credit() -> None:
    script = table({"a:": ["1/0", "2/0"], "b:a1": ["?/0", "0/0"], "b:a2": ["0/0", "0/0"]})
    played = play(TreeSampler(turns=1, branches=2, credit="continuation"), script)
    assert played.credits["a", 0] == [None, 2.0]


def test_backup_averages_what_was_grown_and_leaves_out_what_was_not() -> None:
    played = play(TreeSampler(turns=1, branches=2, credit="backup"), table(LURE))
    # a2 was kept; below it b reached 1 and 5, mean 3. a1 was neither final nor grown.
    assert played.credits == approx({("a", 0): [None, 3.2], ("b", 0): [1.3, 5.0]})


def test_backup_is_a_mean_of_means_and_a_final_sibling_counts_by_its_own_level() -> None:
    script = table({"a:": ["1/0", "0/.5"], "a:a1": ["1/.1", "9/0"], "a:a1,a1": ["1/0", "3/0"]})
    sampler = TreeSampler(turns=3, branches=2, credit="backup", selection=First())
    played = play(sampler, script, agents=SINGLE, goal=10)
    # Last step: 3 and 5, mean 4. Second: 4 + .1, and 10, which ended the episode. First: mean(4, 10) = 7.
    assert played.credits == approx({("a", 0): [7.0, None], ("a", 1): [4.1, 10.0], ("a", 2): [3.0, 5.0]})


def test_backup_leaves_an_unjudged_response_out_of_the_mean() -> None:
    script = table({"a:": ["1/0", "0/0"], "b:a1": ["4/0", "?/0"]})
    assert play(TreeSampler(turns=1, branches=2, credit="backup"), script).credits["a", 0] == [5.0, None]
    nothing = table({"a:": ["1/0", "0/0"], "b:a1": ["?/0", "?/0"]})
    assert play(TreeSampler(turns=1, branches=2, credit="backup"), nothing).credits["a", 0] == [None, None]


def test_backup_of_agents_that_finish_only_together_takes_the_merged_level() -> None:
    script = table({"a:": ["1/0", "0/0"], "b:": ["2/.5", "0/0"]})
    sampler = TreeSampler(turns=2, branches=2, credit="backup", order="parallel")
    played = play(sampler, script, goal=3)
    assert len(played.rounds) == 1
    assert played.credits == {("a", 0): [3.0, None], ("b", 0): [3.5, None]}


def test_backup_of_a_path_that_ended_overlong_takes_its_last_level() -> None:
    script = table({"a:": ["1/0", "0/0"], "b:a1": ["1/0", "0/0"]})
    sampler = TreeSampler(turns=2, branches=2, credit="backup")
    played = play(sampler, script, max_prompt_tokens=4)
    assert played.rollout.overlong
    assert played.credits == {("a", 0): [2.0, None], ("b", 0): [2.0, None]}


def trajectory(credit: ParallelCredit, replies: dict[str, list[str]] | None = None) -> Played:
    return play(ParallelSampler(turns=2, trajectories=1, credit=credit), table(replies or TRAJECTORY))


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ("step", [1.1, 2.2, 3.3, 5.4]),
        # final level 5; the agent's own locals from here on: mean(.1, .3), mean(.2, .4), .3, .4
        ("return_to_go", [5.2, 5.3, 5.3, 5.4]),
        # final level 5 plus the mean of all four locals
        ("outcome", [5.25] * 4),
    ],
)
def test_credits_of_a_trajectory(credit: ParallelCredit, expected: list[float]) -> None:
    turns = trajectory(credit).rollout.turns
    assert [turn.rewards.credit for turn in turns] == pytest.approx(expected)


def test_every_turn_keeps_its_own_local_reward_beside_the_teams() -> None:
    replies = table({"a:": ["1/.2"], "a:a1": ["0/0"], "a:a1,a0": ["0/.5"]})
    played = play(ParallelSampler(turns=3, trajectories=1), replies, agents=SINGLE)
    assert [turn.rewards.local for turn in played.rollout.turns] == [0.2, 0.0, 0.5]
    assert [turn.rewards.credit for turn in played.rollout.turns] == pytest.approx([1.2, 1.0, 1.5])


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ("step", [1.0, None, 2.0, 3.0]),
        ("return_to_go", [3.0, None, 3.0, 3.0]),
        ("outcome", [None] * 4),
    ],
)
def test_a_missing_local_takes_out_what_depends_on_it(credit: ParallelCredit, expected: list[float | None]) -> None:
    replies = {"a:": ["1/0"], "b:a1": ["1/?"], "a:a1,b1": ["0/0"], "b:a1,b1,a0": ["1/0"]}
    assert [turn.rewards.credit for turn in trajectory(credit, replies).rollout.turns] == expected


@pytest.mark.parametrize("credit", ["return_to_go", "outcome"])
def test_a_final_level_that_could_not_be_judged_takes_out_the_trajectory(credit: ParallelCredit) -> None:
    replies = TRAJECTORY | {"b:a1,b1,a1": ["?/0"]}
    assert [turn.rewards.credit for turn in trajectory(credit, replies).rollout.turns] == [None] * 4


@pytest.mark.parametrize("credit", ["return_to_go", "outcome"])
def test_the_final_level_of_agents_that_act_at_once_is_the_merged_states(credit: ParallelCredit) -> None:
    sampler = ParallelSampler(turns=1, trajectories=1, credit=credit, order="parallel")
    played = play(sampler, table({"a:": ["1/0"], "b:": ["2/0"]}))
    assert played.credits == {("a", 0): [3.0], ("b", 0): [3.0]}
