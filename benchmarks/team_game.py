"""A team game so small that the true gradient is known, and with it the bias and variance of every estimator.

python -m benchmarks.team_game

A scout picks 0 or 1, then a runner who sees the pick does, unless the game is over. Nothing is sampled: the project's
own samplers are driven through every outcome with its probability, and its own estimators score each.
"""

from __future__ import annotations

import argparse
import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any, Self

import numpy as np

from atgrpo.envs.base import Environment
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.tree import TreeSampler
from atgrpo.rollout.walk import Episode
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.rae import RAE
from atgrpo.types import Action, Completion, Message, Observation, Request, Rollout, Sample, StepResult
from benchmarks.chance import Chance, every
from benchmarks.grouping.cells import CREDITS, Method, estimator, fits

AGENTS = {"scout": "team", "runner": "team"}
PROMPTS = ("?", "0", "1")
"""What can be seen: the start, and either pick. One parameter each, the log-odds of answering 1."""


@dataclass(frozen=True, slots=True)
class Game:
    """Rules, and the policy at which the gradient is taken."""

    name: str
    level: tuple[float, float]
    """Team reward after the scout's pick."""
    over: tuple[bool, bool]
    """The pick ends the game."""
    final: tuple[tuple[float, float], tuple[float, float]]
    """Team reward after the runner's answer, by the pick."""
    rates: tuple[float, float, float] = (0.5, 0.6, 0.7)
    """Probability of 1 at each of ``PROMPTS``."""

    def values(self) -> list[float]:
        """Expected team reward at the end, by the pick."""
        expected = [(1 - p) * low + p * high for p, (low, high) in zip(self.rates[1:], self.final, strict=True)]
        return [level if over else v for level, over, v in zip(self.level, self.over, expected, strict=True)]

    def gradient(self) -> np.ndarray:
        """True gradient of the expected team reward by the log-odds of ``PROMPTS``."""
        q, after = self.rates[0], self.rates[1:]
        worse, better = self.values()
        picked = (1 - q, q)
        slopes = [
            0.0 if over else chance * p * (1 - p) * (high - low)
            for over, chance, p, (low, high) in zip(self.over, picked, after, self.final, strict=True)
        ]
        return np.array([q * (1 - q) * (better - worse), *slopes])


GAMES = (
    # A pick's own reward is what it is worth: the runner adds the same to both.
    Game("complete", (0.2, 0.5), (False, False), ((0.2, 0.6), (0.5, 0.9))),
    # 0 answers at once, 1 hands over, which earns nothing by itself but leads to more.
    Game("handover", (0.4, 0.0), (True, False), ((0.0, 0.0), (0.0, 1.0))),
    # The runner must do as the scout did, and is better at one of the two.
    Game("match", (0.0, 0.0), (False, False), ((1.0, 0.0), (0.0, 1.0)), (0.5, 0.4, 0.8)),
)


class Relay(Environment):
    """The game as the samplers play it; every response is ``0`` or ``1``."""

    roles = ("scout", "runner")

    def __init__(self, game: Game) -> None:
        self.game = game
        self.picks: tuple[int, ...] = ()

    def reset(self, sample: Sample) -> None:
        self.picks = ()

    def observe(self, agent: str) -> Observation:
        return Observation(agent, [{"role": "user", "content": str(self.picks[0]) if self.picks else "?"}])

    def parse(self, agent: str, text: str) -> Action:
        return Action(int(text), valid=True)

    def step(self, agent: str, action: Action) -> StepResult:
        self.picks = (*self.picks, action.value)
        return StepResult(self.success, 0.0, self.done)

    @property
    def done(self) -> bool:
        return len(self.picks) == 2 or (len(self.picks) == 1 and self.game.over[self.picks[0]])

    @property
    def success(self) -> float:
        if not self.picks:
            return 0.0
        pick = self.picks[0]
        return self.game.level[pick] if len(self.picks) == 1 else self.game.final[pick][self.picks[1]]

    def fork(self) -> Self:
        return copy.copy(self)


@dataclass(frozen=True)
class Table:
    """Plays a game with a sampler, its draws made by ``Chance``.

    Args:
        ordered: Tell equal draws in another order apart, for estimators that do; else how many are 1 decides.
        greedy: A tree keeps a best candidate, else any: a sample of the policy itself.
    """

    game: Game
    sampler: TreeSampler | ParallelSampler
    ordered: bool = False
    greedy: bool = True

    def play(self, chance: Chance) -> Rollout:
        """One rollout."""
        sampler: Any = self.sampler
        if isinstance(sampler, TreeSampler):
            sampler = replace(sampler, selection=lambda credits, rng: _select(self.greedy, credits, chance))
        env = Relay(self.game)
        growth = sampler.grow(Episode(Sample("game", "", ""), 0, env, AGENTS, _render, 0, 10))
        replies = None
        while True:
            try:
                asked = growth.send(replies)
            except StopIteration as end:
                return end.value
            replies = self._answer(asked, chance)

    def _answer(self, asked: Sequence[Request], chance: Chance) -> list[list[Completion]]:
        """Requests that see the same are one lot of draws."""
        lots: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for i, request in enumerate(asked):
            lots[request.prompt_ids] += [i] * request.n
        replies: list[list[Completion]] = [[] for _ in asked]
        for prompt, places in lots.items():
            p = self.game.rates[PROMPTS.index(chr(prompt[0]))]
            for place, pick in zip(places, self._draws(len(places), p, chance), strict=True):
                replies[place].append(Completion((pick,), (0.0,), str(pick), "stop"))
        return replies

    def _draws(self, n: int, p: float, chance: Chance) -> list[int]:
        if self.ordered:
            return [chance.draw((1 - p, p)) for _ in range(n)]
        ones = chance.draw([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
        return [0] * (n - ones) + [1] * ones


def _select(greedy: bool, credits: Sequence[float | None], chance: Chance) -> int:
    """Goes through what may be kept: any candidate, or any of the best."""
    best = max(c for c in credits if c is not None)
    kept = [c == best or not greedy for c in credits]
    return chance.draw([keep / sum(kept) for keep in kept])


def _render(policy: str, messages: Sequence[Message]) -> tuple[int, ...]:
    return tuple(map(ord, messages[-1]["content"]))


@dataclass(frozen=True, slots=True)
class Quality:
    """How good an estimator's gradient g is, beside the true one G.

    The length of a gradient is the learning rate's business, so the mean is first scaled to fit: c = <E g, G> / <G, G>.
    """

    mean: np.ndarray
    """E g by the log-odds of ``PROMPTS``, per response."""
    cosine: float
    """Of the mean and the true gradient."""
    bias: float
    """``|E g / c - G| / |G|``; NaN where the mean does not even point the right way."""
    noise: float
    """``sqrt(tr Cov g) / (c |G|)`` of one prompt."""
    tokens: float
    """Of one prompt, expected."""

    @property
    def noise_per_token(self) -> float:
        """Noise of a single token's worth of prompts: compare estimators at equal tokens by this."""
        return self.noise * self.tokens**0.5


def quality(
    game: Game, sampler: TreeSampler | ParallelSampler, advantage: AdvantageCallback, *, greedy: bool = True
) -> Quality:
    """Exact moments of the gradient of one prompt.

    The loss is a mean over responses. Its denominator is a constant here, as it is in a batch of many prompts.
    """
    table = Table(game, sampler, isinstance(advantage, RAE), greedy)
    rates = dict(zip(PROMPTS, game.rates, strict=True))
    first, second, responses, tokens = np.zeros(3), np.zeros(3), 0.0, 0.0
    for probability, rollout in every(table.play):
        if isinstance(advantage, RAE):
            advantage.baselines = _settled(game)
        (scored,) = advantage.on_rollout_end(None, None, [rollout])
        gradient, used = _gradient(scored, rates)
        first += probability * gradient
        second += probability * gradient**2
        responses += probability * used
        tokens += probability * (len(rollout.turns) + rollout.extra_tokens)
    mean, variance = first / responses, (second - first**2) / responses**2
    true = game.gradient()
    length = float(np.linalg.norm(true))
    scale = float(mean @ true) / length**2
    cosine = float(mean @ true) / (length * float(np.linalg.norm(mean)) or np.nan)
    right = scale > 1e-12
    bias = float(np.linalg.norm(mean / scale - true)) / length if right else float("nan")
    noise = float(np.sqrt(variance.sum().clip(0))) / (scale * length) if right else float("nan")
    return Quality(mean, cosine, bias, noise, tokens)


def _gradient(rollout: Rollout, rates: Mapping[str, float]) -> tuple[np.ndarray, int]:
    """(sum of A times the gradient of the log-probability, number of responses in the loss)."""
    total, used = np.zeros(3), 0
    for turn in rollout.turns:
        if turn.advantage is not None:
            seen = chr(turn.prompt_ids[0])
            total[PROMPTS.index(seen)] += turn.advantage * (turn.action.value - rates[seen])
            used += 1
    return total, used


def _settled(game: Game) -> dict[str, float]:
    """What RAE's moving averages tend to: each role's expected return where it acts."""
    picked = (1 - game.rates[0], game.rates[0])
    acts = [(p, v) for p, v, over in zip(picked, game.values(), game.over, strict=True) if not over]
    scout = sum(p * v for p, v in zip(picked, game.values(), strict=True))
    return {"scout": scout, "runner": sum(p * v for p, v in acts) / sum(p for p, _ in acts)}


def sampler_of(method: Method, k: int) -> TreeSampler | ParallelSampler:
    """The sampler of a method with K candidates or trajectories."""
    if method.sampler == "tree":
        return TreeSampler(turns=1, branches=k, credit=method.credit, max_tokens=1)  # type: ignore[arg-type]
    return ParallelSampler(turns=1, trajectories=k, credit=method.credit, max_tokens=1)  # type: ignore[arg-type]


GROUPINGS = (
    *(
        "at_grpo",
        "grpo",
        "grpo_pooled",
        "agent_wise",
        "turn_wise",
        "rloo",
        "dr_grpo",
        "dr_mas",
        "magrpo",
        "c3",
        "gigpo",
    ),
    *("tree_grpo", "treerl", "rae", "reinforce_pp"),
)


def all_methods() -> list[Method]:
    """Every estimator with every sampler and credit that it takes."""
    pairs = [(sampler, credit) for sampler, credits in CREDITS.items() for credit in credits]
    return [m for grouping in GROUPINGS for m in (Method(grouping, *pair) for pair in pairs) if fits(m)]


def main() -> None:
    """Prints a table for each game."""
    parser = argparse.ArgumentParser(description="Exact bias and variance of every estimator in a small team game.")
    parser.add_argument("-k", type=int, default=3, help="candidates, or trajectories (default 3)")
    parser.add_argument("--selection", choices=("greedy", "uniform"), default="greedy", help="of trees")
    arguments = parser.parse_args()
    greedy = arguments.selection == "greedy"
    for game in GAMES:
        true = ", ".join(f"{g:+.3f}" for g in game.gradient())
        print(f"\n## {game.name}: true gradient {true}\n")
        print("| method | cosine | bias | noise of a prompt | tokens | noise of a token | mean gradient |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for method in all_methods():
            found = quality(game, sampler_of(method, arguments.k), estimator(method.grouping)(), greedy=greedy)
            numbers = (found.cosine, found.bias, found.noise, found.tokens, found.noise_per_token)
            mean = ", ".join(f"{g:+.3f}" for g in found.mean)
            print(f"| {method.label} | {' | '.join(f'{n:.3f}' for n in numbers)} | {mean} |", flush=True)


if __name__ == "__main__":
    main()
