"""What environments promise, checked where a walk meets them: a broken promise is named before it becomes a number."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, TypeVar

from atgrpo.envs.base import Environment
from atgrpo.types import StepResult

T = TypeVar("T")


class EnvError(ValueError):
    """An environment, or what it calls (a reward function, a game, a play), did not do what is expected of it.

    Its message is a whole one: the command line shows nothing else, but the error it was raised from.
    """


def returned(env: Environment, method: str, found: Any, kind: type[T]) -> T:
    """What a method of ``env`` returned.

    Raises:
        EnvError: it is not of that kind.
    """
    if not isinstance(found, kind):
        raise EnvError(f"{type(env).__name__}.{method} returned {found!r:.80}, expected an object of {kind.__name__}")
    return found


def rewarded(env: Environment, found: Any) -> StepResult:
    """What ``env.step`` returned.

    Raises:
        EnvError: it is no StepResult, or a reward is no finite number.
    """
    result = returned(env, "step", found, StepResult)
    if not all(reward is None or is_finite(reward) for reward in (result.team_reward, result.local_reward)):
        name = type(env).__name__
        raise EnvError(f"{name}.step got rewards {result}, expected finite numbers, or None for a missing one")
    return result


def success_of(env: Environment) -> float:
    """How far the team has come, 0 to 1; NaN where nobody knows.

    Raises:
        EnvError: it is another number, or none.
    """
    found: Any = env.success
    value = float(found) if isinstance(found, Real) else math.inf
    if not (math.isnan(value) or 0 <= value <= 1):
        raise EnvError(f"{type(env).__name__}.success got {found!r:.80}, expected 0 to 1, or NaN where nobody knows")
    return value


def check_paid(what: str, paid: float | None, unanswered: float) -> None:
    """Refuses a reward below that of an episode without an answer: nothing would pay better than to stay silent.

    Raises:
        EnvError: it is below.
    """
    if paid is not None and paid < unanswered:
        raise EnvError(
            f"{what} paid {paid:g}, less than the {unanswered:g} of an episode that ends without an answer, so none "
            "would be learned: set env.unanswered to the least that is paid"
        )


def is_finite(number: Any) -> bool:
    """A number, numpy's among them, that is neither NaN nor infinite."""
    try:
        return isinstance(number, Real) and math.isfinite(number)
    except OverflowError:  # an integer of hundreds of digits
        return False
