"""A task that shows how it is done: the first role writes a digit, the second one copies it."""

from __future__ import annotations

from collections.abc import Sequence

from atgrpo.data.base import Split, TaskData
from atgrpo.envs.base import Environment
from atgrpo.types import Action, Observation, Sample, StepResult


class Digits(TaskData):
    def split(self, name: Split) -> Sequence[Sample]:
        return tuple(Sample(f"{name}-{i}", f"after {i}?", str(i + 1)) for i in range(9))


class Counting(Environment):
    roles = ("tool", "reasoner")
    step_rewards_complete = True

    def __init__(self) -> None:
        self.said = ""

    def reset(self, sample: Sample) -> None:
        self.sample = sample

    def observe(self, agent: str) -> Observation:
        return Observation(agent, [{"role": "user", "content": f"{self.sample.prompt}{self.said}"}])

    def parse(self, agent: str, text: str) -> Action:
        return Action(text, text.isdigit())

    def step(self, agent: str, action: Action) -> StepResult:
        self.said += f" {agent}:{action.value}"
        return StepResult(self.success, float(action.value == self.sample.answer), done=self.done)

    def demonstrate(self, agent: str) -> str | None:
        return self.sample.answer

    @property
    def done(self) -> bool:
        return "reasoner" in self.said

    @property
    def success(self) -> float:
        return float(self.said.endswith(f"reasoner:{self.sample.answer}"))
