"""A team that is written elsewhere, with any client of an OpenAI-compatible endpoint; needs ``sampler=endpoint``."""

from __future__ import annotations

import copy
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn, Self

from atgrpo.envs.base import Environment
from atgrpo.envs.contract import EnvError, is_finite
from atgrpo.types import Action, Observation, Sample, StepResult


@dataclass(frozen=True, slots=True)
class Client:
    """What one play hands to its clients. The ``model`` of a chat completion names the role that answers."""

    base_url: str
    api_key: str
    """Of this play alone; void once it has returned."""
    seed: int
    """For the play's own draws: equal in a resumed run, whatever else is played."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a play came to, where one number does not say it all."""

    team: float | None
    """The team's reward. None: it could not be judged, and nothing is learned from the play."""
    local: Mapping[str, float | None] = field(default_factory=lambda: MappingProxyType({}))
    """Id of a chat completion -> what that call earned; 0 for those that are not named, None for an unjudged one."""
    success: float | None = None
    """How far the goal was reached, 0 to 1, for the reports; the team's reward, clipped to that, where None."""


Play = Callable[[Client, Sample], float | Result | Awaitable[float | Result]]
"""Lets the team work on one sample and says how good it was."""


class External(Environment):
    """The function that plays, and what it returned. Agents, prompts and their order are all its own.

    Args:
        roles: The roles that it calls by ``model``.
        play: The function, plain or async. It runs in several threads at once.
        unanswered: What a play is worth that an overlong prompt or one call too many has ended; the least that it pays.
    """

    def __init__(self, roles: Sequence[str], play: Play, unanswered: float = 0.0) -> None:
        self.roles = tuple(roles)  # type: ignore[misc]  # the class of a task written elsewhere knows none
        self.play = play
        self.unanswered = unanswered
        self._success: float | None = None

    def reset(self, sample: Sample) -> None:
        """Nothing is played yet."""
        self._success = None

    def ended(self, result: Result) -> Self:
        """The state after a play."""
        after = copy.copy(self)
        success = result.team if result.success is None else result.success
        after._success = math.nan if success is None else min(1.0, max(0.0, success))
        return after

    def observe(self, agent: str) -> Observation:
        """Refused, as are ``parse`` and ``step``: only the endpoint knows what is asked and when."""
        _refuse()

    def parse(self, agent: str, text: str) -> Action:
        _refuse()

    def step(self, agent: str, action: Action) -> StepResult:
        _refuse()

    @property
    def done(self) -> bool:
        """It was played."""
        return self._success is not None

    @property
    def success(self) -> float:
        """That of the play; NaN before it, and where it was not judged."""
        return math.nan if self._success is None else self._success


def as_result(value: Any) -> Result:
    """What a play returned, checked.

    Raises:
        EnvError: neither a finite number nor a Result of such numbers, with a mapping of ids as ``local`` and
            ``success`` within 0..1.
    """
    result = value if isinstance(value, Result) else Result(team=value)
    local: Any = result.local
    if not isinstance(local, Mapping) or not all(isinstance(key, str) for key in local):
        raise EnvError(f"play returned Result.local={local!r:.200}, expected a mapping of ids of chat completions")
    numbers: list[Any] = [result.team, result.success, *local.values()]
    if value is None or not all(n is None or is_finite(n) for n in numbers):
        raise EnvError(f"play returned {value!r:.200}, expected a finite number, or a Result of such and of None")
    if result.success is not None and not 0 <= result.success <= 1:
        raise EnvError(f"play returned Result.success={result.success!r:.80}, expected 0 to 1, or None")
    return Result(
        team=_plain(result.team), local={key: _plain(n) for key, n in local.items()}, success=_plain(result.success)
    )


def _plain(number: float | None) -> float | None:
    """Numbers of numpy and the like as Python's own."""
    return None if number is None else float(number)


def _refuse() -> NoReturn:
    raise ValueError("env=external got a sampler that steps through turns, expected sampler=endpoint")
