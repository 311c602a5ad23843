from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.types import Rollout
from tests.rollout.helpers import Fragile, Played, Script, play, prompt_of

SINGLE = {"a": "pa"}


def in_turn(replies: Mapping[str, Sequence[str]]) -> Script:
    """The k-th trajectory to ask a prompt gets the k-th entry for it."""
    left = {prompt: iter(texts) for prompt, texts in replies.items()}
    return lambda request, i: next(left[prompt_of(request)])


def two_paths() -> Script:
    return in_turn({"a:": ["1/0", "5/.5"], "a:a1": ["1/0"], "a:a5": ["-1/0"]})


def trajectories(played: Played) -> list[list[tuple[int, float | None]]]:
    """For each trajectory, (turn, credit) of its steps."""
    found: dict[int, list[tuple[int, float | None]]] = {}
    for turn in played.rollout.turns:
        found.setdefault(turn.key.branch, []).append((turn.key.turn, turn.rewards.credit))
    return [found[branch] for branch in sorted(found)]


def test_trajectories_are_independent_and_nothing_is_selected_by_reward() -> None:
    played = play(ParallelSampler(turns=2, trajectories=2), two_paths(), agents=SINGLE)
    assert trajectories(played) == [[(0, 1.0), (1, 2.0)], [(0, 5.5), (1, 4.0)]]
    assert played.prompts == [["a:", "a:"], ["a:a1", "a:a5"]]
    assert all(request.n == 1 for requests in played.rounds for request in requests)
    assert all(turn.selected and turn.key.node == 0 for turn in played.rollout.turns)
    assert played.root.log == []


def test_outcome_and_success_are_means_over_trajectories() -> None:
    rollout = play(ParallelSampler(turns=2, trajectories=2), two_paths(), agents=SINGLE, goal=5).rollout
    assert rollout.outcome == pytest.approx((0.2 + 0.5) / 2)
    assert rollout.success_by_turn == pytest.approx(((0.1 + 0.5) / 2, (0.2 + 0.5) / 2))


def test_outcome_and_success_are_over_the_trajectories_that_could_be_judged() -> None:
    def rollout(*texts: str) -> Rollout:
        sampler = ParallelSampler(turns=1, trajectories=3)
        return play(sampler, in_turn({"a:": texts}), agents=SINGLE, task=Fragile).rollout

    one = rollout("1/0", "?/0", "0/0")
    assert (one.outcome, one.success_by_turn) == (0.05, (0.05,))
    none = rollout("?/0", "?/0", "?/0")
    assert math.isnan(none.outcome) and math.isnan(none.success_by_turn[0])


def test_a_trajectory_that_is_done_leaves_the_others_playing() -> None:
    played = play(ParallelSampler(turns=2, trajectories=2), two_paths(), agents=SINGLE, goal=5)
    assert played.prompts == [["a:", "a:"], ["a:a1"]]


def test_one_overlong_trajectory_is_counted_and_leaves_the_others_playing() -> None:
    script = in_turn({"a:": ["1/0", "0.25/0"], "a:a1": ["1/0"]})
    played = play(ParallelSampler(turns=2, trajectories=2), script, agents=SINGLE, max_prompt_tokens=4)
    assert played.prompts == [["a:", "a:"], ["a:a1"]]
    assert played.rollout.overlong


def test_same_seed_same_requests_and_no_two_streams_alike() -> None:
    def seeds(**settings: int) -> list[int]:
        played = play(ParallelSampler(turns=2, trajectories=2), two_paths(), agents=SINGLE, **settings)
        return [request.seed for requests in played.rounds for request in requests]

    assert seeds(seed=4) == seeds(seed=4)
    drawn = seeds() + seeds(seed=1) + seeds(tree=1)
    assert len(set(drawn)) == len(drawn) == 12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"credit": "continuation"}, "'continuation' and 'backup' need sampler=tree"),
        ({"credit": "backup"}, "need sampler=tree"),
        ({"trajectories": 0}, "got trajectories=0, expected at least 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParallelSampler(**settings)
