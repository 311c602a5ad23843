"""Settings and helpers that the tree and the parallel sampler share."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from atgrpo.envs.contract import success_of
from atgrpo.rollout.endpoint_calls import Calls
from atgrpo.rollout.walk import Candidate, Episode, Node, Path, Stage
from atgrpo.types import Completion, Request, Rewards, Rollout, Sampling, Turn, TurnKey

Growing = Generator[list[Request] | Calls, list[list[Completion]], Rollout]
"""A ``Growth`` of a rollout that may also let threads of its own ask."""


class Sampler(Protocol):
    """Grows one rollout from one sample. Evaluation and the dry run also need what ``SamplerSettings`` has."""

    def grow(self, episode: Episode) -> Growing: ...


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """How an episode is played, whichever way it is sampled.

    Args:
        turns: Most turns (T) of an episode.
        order: ``sequence``: each agent sees the chosen results of those before it in the same turn; ``parallel``: all
            act on the state at the turn's start, then the chosen actions are applied in turn order.
        alpha: Weight of the team reward in ``alpha * team + local``.
        max_tokens: Longest response, one number or one per agent.
        temperature: Of the policy that is trained; greedy (0) cannot be trained on.
    """

    turns: int = 4
    order: Literal["sequence", "parallel"] = "sequence"
    alpha: float = 1.0
    max_tokens: int | Mapping[str, int] = 256
    temperature: float = 1.0

    def __post_init__(self) -> None:
        at_least_one(turns=self.turns, max_tokens=self.max_tokens)
        if self.order not in ("sequence", "parallel"):
            raise ValueError(f"sampler got order={self.order!r}, expected 'sequence' or 'parallel'")

    def sampling(self, agent: str) -> Sampling:
        """How ``agent``'s responses are drawn."""
        return Sampling(per_agent(self.max_tokens, agent, "max_tokens"), self.temperature)

    def responses(self, agent: str) -> int:
        """Most responses of ``agent`` in one turn of one prompt."""
        raise NotImplementedError

    def playout_tokens(self, agents: Sequence[str]) -> int:
        """Most tokens of one tree that are sampled besides its candidates."""
        return 0

    def stages(self, agents: Sequence[str]) -> list[Stage]:
        """The whole plan of an episode, turn by turn."""
        if self.order == "parallel":
            return [Stage(turn, tuple(agents), True) for turn in range(self.turns)]
        return [Stage(turn, (a,), a == agents[-1]) for turn in range(self.turns) for a in agents]


def at_least_one(**settings: int | Mapping[str, int]) -> None:
    """Refuses a setting of a sampler, one number or one per agent, that is less than 1."""
    for name, value in settings.items():
        for number in value.values() if isinstance(value, Mapping) else (value,):
            if number < 1:
                raise ValueError(f"sampler got {name}={value}, expected at least 1")


def per_agent(value: int | Mapping[str, int], agent: str, name: str) -> int:
    """A setting that is one number for all agents or a mapping by role."""
    if not isinstance(value, Mapping):
        return value
    if agent not in value:
        raise ValueError(f"sampler got {name} for {sorted(value)}, expected one for agent {agent!r} too")
    return value[agent]


def make_turn(
    episode: Episode, node: Node, candidate: Candidate, credit: float | None, *, selected: bool, below: int = 0
) -> Turn:
    """The record of one candidate; ``below`` is ``TurnKey.node``."""
    key = TurnKey(episode.sample.id, episode.tree, node.agent, node.turn, candidate.branch, below)
    rewards = Rewards(candidate.result.team_reward, candidate.result.local_reward, credit)
    return Turn(
        key=key,
        policy=episode.agents[node.agent],
        prompt_ids=node.prompt_ids,
        completion=candidate.completion,
        action=candidate.action,
        rewards=rewards,
        done=candidate.result.done,
        selected=selected,
        info={name: float(v) for name, v in candidate.result.info.items() if isinstance(v, int | float)},
    )


def padded_success(path: Path, turns: int) -> list[float]:
    """Success had the team stopped after each of ``turns`` turns; a path that ended early keeps its last value."""
    seen = path.success_by_turn
    return seen + [success_of(path.env)] * (turns - len(seen))


def mean(values: Iterable[float | None]) -> float:
    """Of those that are there (neither None nor NaN); NaN if none is."""
    known = [v for v in values if v is not None and not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan
