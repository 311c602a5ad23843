"""A task on which a random model already differs from itself, so that there is always something to learn."""

from __future__ import annotations

from atgrpo.envs.base import Environment
from atgrpo.types import Action, Observation, Sample, StepResult


class Letters(Environment):
    """Two roles write text; the team is paid for its vowels, each role for its digits."""

    roles = ("tool", "reasoner")
    step_rewards_complete = True

    def __init__(self) -> None:
        self.said: list[str] = []

    def reset(self, sample: Sample) -> None:
        self.prompt = sample.prompt

    def observe(self, agent: str) -> Observation:
        return Observation(agent, [{"role": "user", "content": " ".join([self.prompt, *self.said])}])

    def parse(self, agent: str, text: str) -> Action:
        return Action(text, bool(text.strip()))

    def step(self, agent: str, action: Action) -> StepResult:
        self.said.append("".join(action.value.split()))
        digits = sum(letter.isdigit() for letter in action.value) / 8
        return StepResult(self.success, digits, done=False)

    @property
    def done(self) -> bool:
        return False

    @property
    def success(self) -> float:
        text = "".join(self.said)
        return sum(letter in "aeiouAEIOU" for letter in text) / max(1, len(text))
