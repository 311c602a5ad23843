from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from atgrpo.data.small_programs import EXAMPLES, HIDDEN, RULES, SimpleFunctions, SmallPrograms
from atgrpo.envs.code import CodeTeam
from atgrpo.envs.code_tests import Problem
from atgrpo.sandbox.calls import call_function
from atgrpo.sandbox.compare import same_output, same_value
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox
from atgrpo.types import Sample

ANY = """
import contextlib, io, sys

def answer(source, function, given):
    if function is None:
        out, sys.stdin = io.StringIO(), io.StringIO(given)
        with contextlib.redirect_stdout(out):
            exec(source, {})
        return out.getvalue()
    names = {}
    exec(source, names)
    return names[function](*given)
"""


def fixed() -> list[Sample]:
    data = SmallPrograms()
    return [*data.split("train"), *data.split("heldout")]


def failing(samples: Sequence[Sample]) -> list[tuple[str, Any]]:
    """Tests that a sample's own reference does not pass; all of them in one sandbox."""
    tests = [(s, given, result) for s in samples for given, result in [*s.meta["examples"], *s.meta["tests"]]]
    calls = [[s.meta["reference"], s.meta.get("function"), given] for s, given, _ in tests]
    returned = call_function(Sandbox(Limits(seconds=20, cpu_seconds=20)), ANY, "answer", calls)
    failed = []
    for (sample, given, result), got in zip(tests, returned, strict=True):
        same = same_value if "function" in sample.meta else same_output
        if got.error is not None or not same(got.value, result):
            failed.append((sample.id, given))
    return failed


def test_every_reference_passes_its_own_tests() -> None:
    assert failing(fixed()) == []
    made = SimpleFunctions(train_size=64, heldout_size=32)
    assert failing([*made.split("train"), *made.split("heldout")]) == []


def test_a_wrong_reference_would_be_noticed() -> None:
    sample = Sample(
        "s", "p", "", {"function": "f", "examples": [], "tests": [[[1], 2]], "reference": "def f(n): return 1"}
    )
    assert failing([sample]) == [("s", [1])]


def test_the_fixed_set_is_large_enough_and_says_what_it_wants() -> None:
    samples = fixed()
    assert len(samples) >= 60
    stdin = [sample for sample in samples if "function" not in sample.meta]
    assert 10 <= len(stdin) < len(samples) / 3
    for sample in samples:
        problem = Problem.of(sample)
        given = [case.given for case in (*problem.examples, *problem.hidden)]
        assert len(problem.examples) >= 2
        assert len(problem.hidden) >= 5
        assert len(set(given)) == len(given), sample.id
        assert len({case.expected for case in problem.hidden}) > 1, sample.id
        assert sample.answer == problem.reference
        assert problem.function is None or f"Write {problem.function}(" in sample.prompt


def test_splits_of_the_fixed_set_are_disjoint_and_stay_as_they_are() -> None:
    data = SmallPrograms()
    train, heldout = data.split("train"), data.split("heldout")
    assert not {s.id for s in train} & {s.id for s in heldout}
    assert not {s.prompt for s in train} & {s.prompt for s in heldout}
    assert (len(train), len(heldout)) == (53, 21)
    assert {"area", "fibonacci", "sort-words"} <= {s.id for s in heldout}
    only = SmallPrograms(kind="stdin").split("train")
    assert [s.id for s in only] == [s.id for s in train if "function" not in s.meta]


def test_made_splits_are_disjoint_whatever_the_seed() -> None:
    seeds = [SimpleFunctions(seed=seed) for seed in (0, 1)]
    train = [{s.prompt for s in data.split("train")} for data in seeds]
    heldout = [{s.prompt for s in data.split("heldout")} for data in seeds]
    assert not (train[0] | train[1]) & (heldout[0] | heldout[1])
    assert train[0] != train[1]
    assert [len(texts) for texts in (*train, *heldout)] == [512, 512, 128, 128]
    assert SimpleFunctions(seed=1).split("train") == seeds[1].split("train")


def test_made_problems_cannot_be_passed_by_a_constant_or_by_an_argument() -> None:
    for sample in SimpleFunctions().split("train"):
        results = [result for _, result in sample.meta["tests"]]
        assert len(sample.meta["tests"]) == HIDDEN
        assert len(sample.meta["examples"]) == EXAMPLES
        assert any(result != results[0] for result in results)
        for place in range(len(sample.meta["tests"][0][0])):
            assert [given[place] for given, _ in sample.meta["tests"]] != results


def test_no_two_rules_say_the_same() -> None:
    assert len({rule.text for rule in RULES}) == len({rule.expression for rule in RULES}) == len(RULES)


def test_made_problems_are_short_enough_for_a_tiny_model() -> None:
    for sample in SimpleFunctions(arguments=["n"]).split("train"):
        env = CodeTeam(shots=0, examples=0, coder_prompt="")
        env.reset(sample)
        assert len(env.observe("coder").messages[-1]["content"]) < 150
        assert json.dumps(sample.meta)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arguments": []}, r"arguments got \[\], expected a list of \['ab', 'n', 's', 'x'\]"),
        ({"arguments": ["q"]}, r"arguments got \['q'\]"),
        ({"largest": 4}, "largest got 4, expected 5 to 1000"),
        ({"largest": 3}, "largest got 3, expected 5 to 1000"),
        ({"largest": 1001}, "largest got 1001, expected 5 to 1000"),
        ({"train_size": 0}, "train_size got 0, expected at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimpleFunctions(**settings)


def test_the_least_numbers_give_every_problem_there_is_and_then_an_error() -> None:
    data = SimpleFunctions(arguments=["n"], largest=5, train_size=50, heldout_size=10)
    assert [len(data.split("train")), len(data.split("heldout"))] == [50, 10]
    with pytest.raises(ValueError, match="heldout_size got 512, expected at most about"):
        SimpleFunctions(arguments=["n"], largest=5, heldout_size=512).split("heldout")


def test_more_problems_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="train_size got 99, expected at most about"):
        SimpleFunctions(arguments=["s"], largest=5, train_size=99).split("train")


def test_wrong_kinds_and_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="kind got 'shell', expected 'function', 'stdin' or None"):
        SmallPrograms(kind="shell")  # type: ignore[arg-type]
    for data in (SmallPrograms(), SimpleFunctions()):
        with pytest.raises(ValueError, match="split got 'test', expected 'train' or 'heldout'"):
            data.split("test")  # type: ignore[arg-type]
