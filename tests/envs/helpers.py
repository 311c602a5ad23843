"""A math team on one sample, played by hand."""

from __future__ import annotations

from atgrpo.envs.math import MathTeam
from atgrpo.types import Sample, StepResult

SAMPLE = Sample("s", "Tom has 3 bags of 5 nuts and finds 4 more. How many nuts?", "19")


def team(sample: Sample = SAMPLE, **settings: object) -> MathTeam:
    env = MathTeam(**settings)  # type: ignore[arg-type]
    env.reset(sample)
    return env


def act(env: MathTeam, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def chat(env: MathTeam, agent: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in env.observe(agent).messages]
