"""What a task must offer. A new environment is a subclass in one file plus one yaml in ``conf/env``."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar, Self

from atgrpo.types import Action, Observation, Sample, StepResult


class Environment(ABC):
    """The state of one team on one sample, and the rules that change it.

    An object is one state. The samplers call ``reset`` once, then for each step ``observe`` the acting agent's view,
    ``fork`` a copy per candidate, ``parse`` and ``step`` each copy, and go on from the selected copy. Anything random
    must draw from the sample (``sample.meta``), so that equal actions give equal results.
    """

    roles: ClassVar[tuple[str, ...]]
    """Every role the task knows, in turn order."""
    step_rewards_complete: bool = False
    """True when a step's own reward says how good the step was; ``credit: step`` warns where it is False."""

    @abstractmethod
    def reset(self, sample: Sample) -> None:
        """Starts an episode. ``done`` may be True right after (then nothing is sampled)."""

    @abstractmethod
    def observe(self, agent: str) -> Observation:
        """The chat that ``agent`` answers now. Never holds the gold answer, never changes the state."""

    @abstractmethod
    def parse(self, agent: str, text: str) -> Action:
        """Reads a response. Malformed text is an invalid action, not an error."""

    @abstractmethod
    def step(self, agent: str, action: Action) -> StepResult:
        """Applies the action and rewards it. A judge that crashes gives None rewards, never 0."""

    def demonstrate(self, agent: str) -> str | None:
        """A good response of ``agent`` to this state, for a warm start. None: the task has none to show."""
        return None

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """What whoever starts a run with these roles should know, a line each."""
        return ()

    @property
    @abstractmethod
    def done(self) -> bool:
        """The episode is over."""

    @property
    @abstractmethod
    def success(self) -> float:
        """How far the team has reached the goal, 0 to 1; what ``outcome`` and evaluation report."""

    def fork(self) -> Self:
        """An independent copy: stepping it leaves this state as it was."""
        return copy.deepcopy(self)
