from __future__ import annotations

import math
from typing import Any

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


@pytest.mark.parametrize(
    "value", [None, "1", math.nan, math.inf, [1.0], Result(math.nan), Result(1.0, {"a-0": math.inf}), Result("1")]
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"play returned .*, expected a finite number, or a Result"):
        as_result(value)
