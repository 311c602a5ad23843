from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.calculator import Expressions
from atgrpo.envs.arithmetic import evaluate

OPTIONS = st.fixed_dictionaries(
    {
        "operations": st.lists(st.sampled_from([1, 2]), min_size=1, max_size=2),
        "operators": st.sampled_from(["+", "*", "+-", "+-*"]),
        "others": st.sampled_from([(2, 9), (10, 99)]),
    }
)


def unordered(expression: str) -> tuple[list[str], list[str]]:
    return sorted(re.findall(r"\d+", expression)), sorted(re.findall(r"[-+*]", expression))


@settings(max_examples=15, deadline=None)
@given(OPTIONS, st.integers(0, 10**6))
def test_every_instance_is_solvable_and_never_holds_its_answer(options: dict[str, object], seed: int) -> None:
    data = Expressions(**options, train_size=60, heldout_size=30, seed=seed)  # type: ignore[arg-type]
    for sample in (*data.split("train"), *data.split("heldout")):
        expression = sample.meta["expression"]
        assert sample.prompt == f"{expression}="
        assert evaluate(expression) == int(sample.answer) > 0
        assert sample.answer not in re.findall(r"\d+", sample.prompt)
        assert len(re.findall(r"[-+*]", expression)) in options["operations"]  # type: ignore[operator]


@settings(max_examples=10, deadline=None)
@given(OPTIONS, st.integers(0, 99), st.integers(100, 199))
def test_splits_are_disjoint_in_any_order_of_the_numbers_and_under_any_seed(
    options: dict[str, object], seed: int, other: int
) -> None:
    train = Expressions(**options, train_size=300, heldout_size=20, seed=seed).split("train")  # type: ignore[arg-type]
    heldout = Expressions(**options, heldout_size=40, seed=other).split("heldout")  # type: ignore[arg-type]
    seen = [unordered(s.meta["expression"]) for s in train]
    assert not [s.prompt for s in heldout if unordered(s.meta["expression"]) in seen]


def test_sizes_ids_texts_and_ranges() -> None:
    data = Expressions()
    train, heldout = data.split("train"), data.split("heldout")
    assert (len(train), len(heldout)) == (4096, 256)
    assert len({s.id for s in (*train, *heldout)}) == len({s.prompt for s in (*train, *heldout)}) == 4352
    numbers = [int(n) for s in train for n in re.findall(r"\d+", s.prompt)]
    assert (min(numbers), max(numbers)) == (10, 99)
    assert max(len(s.prompt) for s in train) == 6


def test_equal_seeds_give_equal_samples_and_others_do_not() -> None:
    one, same, other = (Expressions(seed=seed).split("heldout") for seed in (3, 3, 4))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operations": []}, r"operations got \[\], expected a list of whole numbers from 1 to 31"),
        ({"operations": 2}, "operations got 2, expected a list"),
        ({"operations": [1.5]}, r"operations got \[1.5\]"),
        ({"operations": [32], "operators": "+"}, r"operations got \[32\]"),
        (
            {"operations": [12]},
            r"^operations=12, operators='\*', first up to 99 .* got results that may be over 10\^18",
        ),
        ({"operations": [12], "operators": "+-*"}, "others up to 99 got results that may be over"),
        (
            {"operations": [31], "operators": "+", "others": [1, 10**10]},
            "got up to 374 characters, expected at most 200",
        ),
        ({"first": [0.5, 3]}, r"first got \[0.5, 3\], expected \[least, largest\], whole numbers from 0"),
        ({"others": [1, 2.0]}, r"others got \[1, 2.0\]"),
        ({"operations": [0]}, r"operations got \[0\]"),
        ({"operators": "/"}, "operators got '/', expected some of"),
        ({"operators": ""}, "operators got ''"),
        ({"first": [9, 2]}, r"first got \[9, 2\], expected \[least, largest\], whole"),
        ({"others": [5]}, r"others got \[5\]"),
        ({"others": [-5, 5]}, r"others got \[-5, 5\]"),
        ({"train_size": 0}, "train_size got 0, expected at least 1"),
        ({"heldout_size": -1}, "heldout_size got -1"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expressions(**options)  # type: ignore[arg-type]


def test_the_largest_settings_that_are_taken_never_fail_in_a_draw() -> None:
    for operations, operators, others in (([8], "*", (99, 99)), ([8], "+-*", (99, 99)), ([31], "+-", (1, 9))):
        data = Expressions(operations, operators, (98, 99), others, train_size=1, heldout_size=1)
        assert len(data.split("train")) == 1
    assert len(Expressions([9], first=(1, 1), others=(90, 99), heldout_size=40).split("heldout")) == 40


def test_more_expressions_than_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="heldout_size got 100, expected at most about"):
        Expressions(others=(2, 3), heldout_size=100).split("heldout")


def test_the_sizes_that_the_recipe_names_for_easy_sums_exist() -> None:
    data = Expressions(operators="+", others=(1, 9), train_size=512, heldout_size=64)
    assert (len(data.split("train")), len(data.split("heldout"))) == (512, 64)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split got 'test', expected 'train' or 'heldout'"):
        Expressions().split("test")  # type: ignore[arg-type]
