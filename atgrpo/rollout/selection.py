"""Which candidate's state the team goes on from. A rule is any callable of this shape; ties follow the given stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol


class Selection(Protocol):
    """Picks the index of a candidate. ``None`` rewards could not be judged and are picked only if all are None."""

    def __call__(self, rewards: Sequence[float | None], rng: Random) -> int: ...


def _judged(rewards: Sequence[float | None]) -> dict[int, float]:
    return {i: r for i, r in enumerate(rewards) if r is not None} or dict.fromkeys(range(len(rewards)), 0.0)


@dataclass(frozen=True, slots=True)
class Greedy:
    """The highest reward; ties are broken at random, so that no branch number is favoured."""

    def __call__(self, rewards: Sequence[float | None], rng: Random) -> int:
        judged = _judged(rewards)
        best = max(judged.values())
        return rng.choice([i for i, r in judged.items() if r == best])


@dataclass(frozen=True, slots=True)
class First:
    """The first judged candidate, whatever the rewards: a sample of the policy itself."""

    def __call__(self, rewards: Sequence[float | None], rng: Random) -> int:
        return min(_judged(rewards))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any judged candidate with equal probability."""

    def __call__(self, rewards: Sequence[float | None], rng: Random) -> int:
        return rng.choice(list(_judged(rewards)))


@dataclass(frozen=True, slots=True)
class Softmax:
    """Candidate i with probability proportional to exp(r_i / temperature)."""

    temperature: float = 0.5

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"Softmax selection got temperature {self.temperature}, expected a positive number")

    def __call__(self, rewards: Sequence[float | None], rng: Random) -> int:
        judged = _judged(rewards)
        top = max(judged.values())
        odds = [math.exp((r - top) / self.temperature) for r in judged.values()]
        return rng.choices(list(judged), weights=odds)[0]


@dataclass(frozen=True, slots=True)
class EpsilonGreedy:
    """Greedy, but with probability epsilon any judged candidate."""

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"EpsilonGreedy selection got epsilon {self.epsilon}, expected 0 to 1")

    def __call__(self, rewards: Sequence[float | None], rng: Random) -> int:
        rule: Selection = Uniform() if rng.random() < self.epsilon else Greedy()
        return rule(rewards, rng)
