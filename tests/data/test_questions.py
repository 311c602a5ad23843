from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.questions import KINDS, WorldQuestions, split_of
from atgrpo.envs.world import world, world_corpus

HOPS = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=2, unique=True)


@settings(max_examples=10, deadline=None)
@given(HOPS, st.integers(0, 10**6))
def test_every_question_is_answered_by_following_its_passages(hops: list[int], seed: int) -> None:
    data = WorldQuestions(hops, train_size=60, heldout_size=30, seed=seed)
    for sample in (*data.split("train"), *data.split("heldout")):
        titles = sample.meta["supporting"]
        assert len(titles) == sample.meta["hops"]
        assert sample.meta["hops"] in hops
        assert titles[0] in sample.prompt
        assert sample.answer not in sample.prompt
        for title, leads_to in zip(titles, (*titles[1:], sample.answer), strict=True):
            (passage,) = world_corpus().search(title, 1)
            assert passage.title == title
            assert leads_to in passage.text


@settings(max_examples=10, deadline=None)
@given(HOPS, st.integers(0, 99), st.integers(100, 199))
def test_no_person_is_asked_about_in_both_splits(hops: list[int], seed: int, other: int) -> None:
    train = WorldQuestions(hops, train_size=800, seed=seed).split("train")
    heldout = WorldQuestions(hops, heldout_size=200, seed=other).split("heldout")
    assert not {s.meta["supporting"][0] for s in train} & {s.meta["supporting"][0] for s in heldout}


def test_sizes_ids_and_texts() -> None:
    data = WorldQuestions()
    train, heldout = data.split("train"), data.split("heldout")
    assert (len(train), len(heldout)) == (2048, 256)
    assert len({s.id for s in (*train, *heldout)}) == len({s.prompt for s in (*train, *heldout)}) == 2304
    assert max(len(s.prompt) for s in train) <= 42


def test_every_kind_of_question_occurs() -> None:
    for hops, kinds in KINDS.items():
        samples = WorldQuestions([hops], heldout_size=100).split("heldout")
        asked = {s.prompt.replace(s.meta["supporting"][0], "{}") for s in samples}
        assert asked == {kind.text for kind in kinds}


def test_no_answer_is_common_enough_to_be_guessed() -> None:
    answers = [s.answer for s in WorldQuestions().split("train")]
    assert max(answers.count(answer) for answer in set(answers)) < 0.15 * len(answers)
    assert set(answers) == {*world().company_country.values(), *world().town_river.values()}


def test_equal_seeds_give_equal_samples_and_others_do_not() -> None:
    one, same, other = (WorldQuestions(seed=seed).split("heldout") for seed in (3, 3, 4))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": [3]}, r"hops got \[3\], expected a list of \[1, 2\]"),
        ({"hops": []}, r"hops got \[\]"),
        ({"train_size": 0}, "train_size got 0, expected at least 1"),
        ({"heldout_size": -1}, "heldout_size got -1"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WorldQuestions(**options)  # type: ignore[arg-type]


def test_more_questions_than_exist_are_refused() -> None:
    people = sum(split_of(person.name) == "heldout" for person in world().people)
    assert len(WorldQuestions(heldout_size=3 * people).split("heldout")) == 3 * people
    with pytest.raises(ValueError, match=f"heldout_size got 4000, expected at most {3 * people}"):
        WorldQuestions(heldout_size=4000).split("heldout")


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split got 'test', expected 'train' or 'heldout'"):
        WorldQuestions().split("test")  # type: ignore[arg-type]
