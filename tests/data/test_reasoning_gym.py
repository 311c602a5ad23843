from __future__ import annotations

import logging
from typing import Any

import pytest
from reasoning_gym.factory import DATASETS

from atgrpo.data.reasoning_gym import ReasoningGym
from atgrpo.envs.answers import equal


def test_splits_are_disjoint_and_scorable() -> None:
    data = ReasoningGym(
        "chain_sum", train_size=200, heldout_size=100, min_terms=2, max_terms=2, min_digits=1, max_digits=2
    )
    train, heldout = data.split("train"), data.split("heldout")
    assert (len(train), len(heldout)) == (200, 100)
    assert len({s.prompt for s in (*train, *heldout)}) == 300
    assert len({s.id for s in (*train, *heldout)}) == 300
    assert all(equal(s.answer, s.answer) for s in heldout)


def test_seeds_next_to_each_other_share_little() -> None:
    one, same, other = (
        {s.prompt for s in ReasoningGym("chain_sum", heldout_size=50, seed=seed).split("heldout")} for seed in (0, 0, 1)
    )
    assert one == same
    assert len(one & other) < 10


def test_a_task_that_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="task got 'caesar_cipher', expected one whose answers are numbers"):
        ReasoningGym("caesar_cipher").split("heldout")


def test_answers_that_cannot_be_judged_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [{"question": f"q{i}", "answer": "A" if i % 2 else str(i), "metadata": {}} for i in range(40)]
    monkeypatch.setattr(ReasoningGym, "_dataset", lambda self, name, size: entries)
    with caplog.at_level(logging.WARNING):
        assert [s.answer for s in ReasoningGym("x", heldout_size=3).split("heldout")] == ["0", "2", "4"]
    assert "refused 2 answers" in caplog.text


def test_more_problems_than_exist_are_refused() -> None:
    data = ReasoningGym("chain_sum", heldout_size=500, min_terms=2, max_terms=2, min_digits=1, max_digits=1)
    with pytest.raises(ValueError, match="heldout_size got 500, expected at most about"):
        data.split("heldout")


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("no_such_task", {}, "task got 'no_such_task'"),
        ("chain_sum", {"terms": 3}, "settings of 'chain_sum' got {'terms': 3}"),
        ("composite", {"datasets": [{"name": "gcd"}]}, "settings of 'composite' got .*datasets"),
        ("chain_sum", {"min_terms": -1}, "settings of 'chain_sum' got"),
    ],
)
def test_wrong_names_and_settings_are_refused(task: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReasoningGym(task, **settings).split("train")


TOO_SLOW = {
    *("advanced_geometry", "arc_agi", "codeio", "countdown", "figlet_font", "futoshiki", "game_of_life", "knight_swap"),
    *("group_anagrams", "intermediate_integration", "polynomial_equations", "polynomial_multiplication", "puzzle24"),
    *("quantum_lock", "rearc", "rubiks_cube", "simple_integration", "sokoban", "sudoku", "word_ladder"),
    "zebra_puzzles",
}
"""To make or to score; none of them pays nonsense either."""


def test_exactly_the_tasks_whose_scorer_pays_nonsense_are_refused() -> None:
    refused = {}
    for task in sorted(set(DATASETS) - TOO_SLOW - {"composite"}):
        try:
            ReasoningGym(task, heldout_size=16, scorable_only=False).split("heldout")
        except ValueError as error:
            refused[task] = str(error)
    assert set(refused) == {"coin_flip", "game_of_life_halting"}
    why = "expected one whose scorer tells answers apart; it pays as much as for the gold answer for "
    assert refused["game_of_life_halting"] == (
        f"task got 'game_of_life_halting', {why}'0' (16 of 16 problems), '1' (16 of 16 problems), '-1' (16 of 16 "
        "problems) and more"
    )
    # It pays an answer whose digits are the first ones of the gold answer, and most of these begin with 0.
    assert f"{why}'0' (1" in refused["coin_flip"]


def test_answers_that_are_often_right_are_not_nonsense() -> None:
    data = ReasoningGym("course_schedule", heldout_size=64, scorable_only=False)
    assert {sample.answer for sample in data.split("heldout")} == {"True", "False"}


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(ValueError, match="train_size got 0, expected at least 1"):
        ReasoningGym("chain_sum", train_size=0)


def test_with_a_scorer_of_its_own_any_task_goes_and_keeps_what_the_scorer_needs() -> None:
    data = ReasoningGym("caesar_cipher", train_size=5, heldout_size=5, scorable_only=False, min_words=3)
    sample = data.split("heldout")[0]
    assert sample.answer == sample.meta["reasoning_gym"]["answer"]
    assert sample.meta["reasoning_gym"]["task"] == "caesar_cipher"
    assert sample.meta["reasoning_gym"]["settings"] == {"min_words": 3}
    assert len({s.prompt for s in (*data.split("train"), *data.split("heldout"))}) == 10


def test_a_task_without_a_gold_answer_has_an_empty_one() -> None:
    (sample,) = ReasoningGym("graph_color", train_size=1, heldout_size=1, scorable_only=False).split("train")
    assert sample.answer == "" and sample.meta["reasoning_gym"]["answer"] is None
