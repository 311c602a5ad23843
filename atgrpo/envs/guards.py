"""What our own environments share: wrong use is refused in the same words, and a fork is a shallow copy."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Generic, Protocol, Self, TypeVar

from atgrpo.envs.base import Environment
from atgrpo.types import Action


class Authored(Protocol):
    """What ``parse`` makes of a response."""

    @property
    def agent(self) -> str:
        """Whose response it was."""


P = TypeVar("P")
"""What an episode is about: a sample, or what was read out of it."""
A = TypeVar("A", bound=Authored)


class Guarded(Environment, Generic[P]):
    """An environment that refuses unknown agents, steps of no open episode, and actions that ``parse`` did not make.

    A subclass sets ``_current`` in ``reset``, and replaces every field on change, never changing it in place.
    """

    _problem: P | None = None

    @property
    def _current(self) -> P:
        """What the episode is about.

        Raises:
            ValueError: there was no reset.
        """
        if self._problem is None:
            raise ValueError("environment got no sample, expected reset first")
        return self._problem

    @_current.setter
    def _current(self, problem: P) -> None:
        self._problem = problem

    def fork(self) -> Self:
        """A shallow copy, as every field is replaced on change and never changed in place."""
        return copy.copy(self)

    def _check(self, agent: str) -> None:
        """Refuses an agent that the team has not.

        Raises:
            ValueError: it is none of the roles.
        """
        if agent not in self.roles:
            raise ValueError(f"agent got {agent!r}, expected one of {self.roles}")

    def _check_open(self, agent: str) -> None:
        """Refuses a step that nobody can take now.

        Raises:
            ValueError: the agent is none of the roles, there was no reset, or the episode is over.
        """
        self._check(agent)
        _ = self._current
        if self.done:
            raise ValueError(f"step of {agent!r} got a finished episode, expected an open one")

    def _made(self, agent: str, action: Action, kind: type[A]) -> A:
        """The value of an action that the agent steps with now.

        Raises:
            ValueError: the episode is not open (see ``_check_open``), or the value is not what ``parse`` made for it.
        """
        self._check_open(agent)
        value = action.value
        if not isinstance(value, kind) or value.agent != agent:
            raise not_made(agent, value)
        return value


def expect_one(agents: Collection[str], wanted: Sequence[str], why: str) -> None:
    """Refuses a team without any of the roles that it cannot do without, for ``Environment.notes``.

    Raises:
        ValueError: none of ``wanted`` plays.
    """
    if not set(wanted).intersection(agents):
        raise ValueError(f"agents: got {', '.join(agents)}, expected {' or '.join(wanted)} too, {why}")


def not_made(agent: str, value: object) -> ValueError:
    """The error of a step with a value that ``parse`` did not make for the agent."""
    return ValueError(f"step of {agent!r} got {value!r}, expected an action that parse made for this agent")
