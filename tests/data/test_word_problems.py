from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.word_problems import NAMES, TEMPLATES, WordProblems
from atgrpo.envs.arithmetic import evaluate

STEPS = st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3, unique=True)


def nameless(prompt: str) -> str:
    return re.sub("|".join(rf"\b{name}\b" for name in NAMES), "N", prompt)


@settings(max_examples=10, deadline=None)
@given(STEPS, st.integers(0, 10**6))
def test_every_instance_is_solvable_and_never_holds_its_answer(steps: list[int], seed: int) -> None:
    data = WordProblems(steps, train_size=100, heldout_size=50, seed=seed)
    for sample in (*data.split("train"), *data.split("heldout")):
        assert evaluate(sample.meta["expression"]) == int(sample.answer) > 0
        assert sample.answer not in re.findall(r"\d+", sample.prompt)
        operations = sum(isinstance(n, ast.BinOp) for n in ast.walk(ast.parse(sample.meta["expression"])))
        assert operations == sample.meta["steps"]
        assert operations in steps


@settings(max_examples=5, deadline=None)
@given(STEPS, st.integers(0, 99), st.integers(100, 199))
def test_splits_are_disjoint_under_every_name_and_seed(steps: list[int], seed: int, other: int) -> None:
    train = WordProblems(steps, train_size=600, seed=seed).split("train")
    heldout = WordProblems(steps, heldout_size=200, seed=other).split("heldout")
    assert not {nameless(s.prompt) for s in train} & {nameless(s.prompt) for s in heldout}


def test_sizes_ids_and_texts() -> None:
    data = WordProblems([2, 3], train_size=500, heldout_size=128)
    train, heldout = data.split("train"), data.split("heldout")
    assert (len(train), len(heldout)) == (500, 128)
    assert len({s.id for s in (*train, *heldout)}) == 628
    assert len({s.prompt for s in (*train, *heldout)}) == 628
    assert {s.meta["steps"] for s in train} == {2, 3}


def test_every_template_occurs() -> None:
    expected = {2: 6, 3: 6, 4: 6}
    assert {steps: len(templates) for steps, templates in TEMPLATES.items()} == expected
    for steps, count in expected.items():
        questions = {
            re.sub(r"\d+", "0", nameless(s.prompt)) for s in WordProblems([steps], heldout_size=200).split("heldout")
        }
        assert len(questions) == count


def test_equal_seeds_give_equal_samples_and_others_do_not() -> None:
    one, same, other = (WordProblems(heldout_size=64, seed=seed).split("heldout") for seed in (3, 3, 4))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": [5]}, r"steps got \[5\], expected a list of \[2, 3, 4\]"),
        ({"steps": []}, r"steps got \[\]"),
        ({"train_size": 0}, "train_size got 0, expected at least 1"),
        ({"heldout_size": -1}, "heldout_size got -1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordProblems(**settings)  # type: ignore[arg-type]


def test_more_problems_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="heldout_size got 1000000, expected at most about"):
        WordProblems([2], heldout_size=1_000_000).split("heldout")


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split got 'test', expected 'train' or 'heldout'"):
        WordProblems().split("test")  # type: ignore[arg-type]
