"""The first role is told a kind of character and writes; the second sees only that text and must go on in kind."""

from __future__ import annotations

import random

from atgrpo.envs.base import Environment
from atgrpo.types import Action, Observation, Sample, StepResult

KINDS = {"digits": "0123456789", "vowels": "aeiouAEIOU"}
LONGEST = 6


class Relay(Environment):
    """A text's share is that of its characters that are of the wanted kind; the team's level is the mean of both."""

    roles = ("first", "second")
    step_rewards_complete = True

    def reset(self, sample: Sample) -> None:
        self.kind = random.Random(sample.meta["seed"]).choice(sorted(KINDS))
        self.texts: dict[str, str] = {}

    def observe(self, agent: str) -> Observation:
        seen = self.kind if agent == "first" else self.texts.get("first", "")
        return Observation(agent, [{"role": "user", "content": f"{agent} {seen}"}])

    def parse(self, agent: str, text: str) -> Action:
        short = "".join(text.split())[:LONGEST]
        return Action(short, valid=bool(short))

    def step(self, agent: str, action: Action) -> StepResult:
        self.texts = {**self.texts, agent: action.value}
        local = self._share(agent) if action.valid else -1.0
        return StepResult(self.success, local, self.done)

    @property
    def done(self) -> bool:
        return len(self.texts) == len(self.roles)

    @property
    def success(self) -> float:
        return sum(map(self._share, self.roles)) / len(self.roles)

    def _share(self, agent: str) -> float:
        text = self.texts.get(agent, "")
        return sum(letter in KINDS[self.kind] for letter in text) / max(1, len(text))
