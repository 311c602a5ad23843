from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from atgrpo.envs.external import External, Result, as_result
from atgrpo.training.team import check_roles
from atgrpo.types import Action, Sample


def never(client: Any, sample: Sample) -> float:
    raise AssertionError("played")


def env() -> External:
    made = External(["a", "b"], never)
    made.reset(Sample("s", "?", "!"))
    return made


def test_its_success_is_what_play_returned_and_unknown_before() -> None:
    start = env()
    assert math.isnan(start.success) and not start.done
    assert (start.ended(Result(0.5)).success, start.ended(Result(-2.0, success=1.0)).success) == (0.5, 1.0)
    assert (start.ended(Result(-2.0)).success, start.ended(Result(3.0)).success) == (0.0, 1.0)
    assert math.isnan(start.ended(Result(None)).success) and start.ended(Result(None)).done
    assert math.isnan(start.success) and not start.done


def test_only_roles_that_it_was_given_may_play() -> None:
    check_roles({"a": "p"}, env())
    with pytest.raises(ValueError, match="got c, expected roles of the task: a, b"):
        check_roles({"c": "p"}, env())


def test_samplers_that_step_through_turns_are_refused() -> None:
    for ask in (
        lambda: env().observe("a"),
        lambda: env().parse("a", "?"),
        lambda: env().step("a", Action(None, valid=False)),
    ):
        with pytest.raises(ValueError, match="expected sampler=endpoint"):
            ask()


@pytest.mark.parametrize("value", [0, 0.5, True, Result(None), Result(1.0, {"a-0": None, "b-0": -1})])
def test_numbers_and_results_of_numbers_are_taken(value: Any) -> None:
    result = as_result(value)
    assert result == (value if isinstance(value, Result) else Result(value))


def test_numbers_of_numpy_become_plain_ones() -> None:
    result = as_result(Result(np.float32(0.5), {"a-0": np.int64(2)}, np.float64(1)))  # type: ignore[arg-type,dict-item]
    assert result == Result(0.5, {"a-0": 2.0}, 1.0)
    assert {type(n) for n in (result.team, result.success, *result.local.values())} == {float}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Result(1.0, [("a-0", 1.0)]), r"Result.local=\[\('a-0', 1.0\)\], expected a mapping of ids"),  # type: ignore[arg-type]
        (Result(1.0, {0: 1.0}), r"Result.local={0: 1.0}, expected a mapping of ids"),  # type: ignore[dict-item]
        (Result(1.0, None), "Result.local=None, expected a mapping of ids"),  # type: ignore[arg-type]
        (Result(1.0, success=1.5), "Result.success=1.5, expected 0 to 1, or None"),
        (Result(1.0, success=-0.1), "Result.success=-0.1, expected 0 to 1"),
    ],
    ids=str,
)
def test_a_result_that_cannot_be_one_is_refused_in_one_line(result: Result, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        as_result(result)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "value",
    [10**400, None, "1", math.nan, math.inf, [1.0], Result(math.nan), Result(1.0, {"a-0": math.inf}), Result("1")],
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"play returned .*, expected a finite number, or a Result"):
        as_result(value)
