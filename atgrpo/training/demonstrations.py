"""Episodes played by the environment itself, for a warm start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from atgrpo.envs.base import Environment
from atgrpo.rollout.samplers import SamplerSettings
from atgrpo.types import Message, Sample


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One good response and what it answers."""

    agent: str
    messages: tuple[Message, ...]
    response: str


def demonstrations(
    environment: Callable[[], Environment],
    agents: Mapping[str, str],
    sampler: SamplerSettings,
    samples: Sequence[Sample],
) -> Iterator[Demonstration]:
    """Plays ``samples`` one after the other, each role by ``Environment.demonstrate``, as a sampler would ask them.

    Raises:
        ValueError: the environment has no response to show where a role is asked for one, or one that it cannot read.
    """
    for sample in samples:
        env = environment()
        env.reset(sample)
        for stage in sampler.stages(tuple(agents)):
            if env.done:
                break
            shown = [_demonstrate(env, agent) for agent in stage.agents]
            yield from shown
            for demonstration in shown:
                if not env.done:
                    env.step(demonstration.agent, env.parse(demonstration.agent, demonstration.response))


def _demonstrate(env: Environment, agent: str) -> Demonstration:
    response = env.demonstrate(agent)
    if response is None:
        raise ValueError(
            f"warm_start: {type(env).__name__} demonstrates nothing for {agent}, expected warm_start.steps=0"
        )
    if not env.fork().parse(agent, response).valid:
        raise ValueError(f"{type(env).__name__}.demonstrate({agent!r}) got {response!r}, expected what parse can read")
    return Demonstration(agent, tuple(env.observe(agent).messages), response)
