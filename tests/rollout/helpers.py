"""A task whose responses state their own rewards, a driver without an engine, and a builder of scored turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atgrpo.envs.base import Environment
from atgrpo.rollout.samplers import Sampler
from atgrpo.rollout.walk import Episode
from atgrpo.types import (
    Action,
    Completion,
    Message,
    Observation,
    Request,
    Rewards,
    Rollout,
    Sample,
    StepResult,
    Turn,
    TurnKey,
)

AGENTS = {"a": "pa", "b": "pb"}
Script = Callable[[Request, int], str]


class Tally(Environment):
    """Agents append numbers to one list; the team's level is their sum, success a tenth of it, and the goal ends it.

    The response "2/.5" appends 2 and earns .5 for its agent; "?" stands for a reward that could not be judged.
    """

    roles = ("a", "b")

    def reset(self, sample: Sample) -> None:
        self.log: list[tuple[str, float]] = []
        self.goal = sample.meta.get("goal", math.inf)

    def observe(self, agent: str) -> Observation:
        seen = ",".join(f"{who}{gain:g}" for who, gain in self.log)
        return Observation(agent, [{"role": "user", "content": f"{agent}:{seen}"}])

    def parse(self, agent: str, text: str) -> Action:
        gain, local = (None if part == "?" else float(part) for part in text.split("/"))
        return Action((gain, local), valid=True)

    def step(self, agent: str, action: Action) -> StepResult:
        gain, local = action.value
        self.log.append((agent, gain or 0.0))
        return StepResult(None if gain is None else self.level, local, self.done)

    @property
    def level(self) -> float:
        return sum(gain for _, gain in self.log)

    @property
    def done(self) -> bool:
        return self.level >= self.goal

    @property
    def success(self) -> float:
        return min(max(self.level / 10, 0.0), 1.0)


class Fragile(Tally):
    """Its judge crashes on "?"; there is no verdict on the team then."""

    crashed = False

    def step(self, agent: str, action: Action) -> StepResult:
        self.crashed = False
        result = super().step(agent, action)
        self.crashed = result.team_reward is None
        return result

    @property
    def success(self) -> float:
        return math.nan if self.crashed else super().success


def table(replies: Mapping[str, Sequence[str]]) -> Script:
    """Answers a prompt's i-th completion with the i-th entry for that prompt; one that is not listed is a KeyError."""
    return lambda request, i: replies[prompt_of(request)][i]


def render(policy: str, messages: Sequence[Message]) -> tuple[int, ...]:
    return tuple(map(ord, messages[-1]["content"]))


def prompt_of(request: Request | Turn) -> str:
    return "".join(map(chr, request.prompt_ids))


def answer(request: Request, i: int, script: Script) -> Completion:
    text = script(request, i)
    ids = tuple(map(ord, text))[: request.sampling.max_tokens]
    return Completion(ids, (-1.0,) * len(ids), text, "stop" if len(ids) == len(text) else "length")


@dataclass
class Played:
    rollout: Rollout
    rounds: list[list[Request]]
    """What was asked at once, in order."""
    root: Tally

    @property
    def prompts(self) -> list[list[str]]:
        return [[prompt_of(request) for request in requests] for requests in self.rounds]

    @property
    def credits(self) -> dict[tuple[str, int], list[float | None]]:
        """(agent, turn) -> credits of its responses on the shared path, in order."""
        found: dict[tuple[str, int], list[float | None]] = {}
        for turn in self.rollout.turns:
            if turn.key.node == 0:
                found.setdefault((turn.key.agent, turn.key.turn), []).append(turn.rewards.credit)
        return found


def play(
    sampler: Sampler,
    script: Script,
    *,
    agents: Mapping[str, str] = AGENTS,
    goal: float = math.inf,
    seed: int = 0,
    tree: int = 0,
    max_prompt_tokens: int = 1000,
    task: type[Tally] = Tally,
) -> Played:
    """One rollout, its requests answered at once."""
    env, sample = task(), Sample("s", "?", "!", {"goal": goal})
    env.reset(sample)
    growth = sampler.grow(Episode(sample, tree, env, agents, render, seed, max_prompt_tokens))
    rounds: list[list[Request]] = []
    replies: Any = None
    while True:
        try:
            rounds.append(growth.send(replies))
        except StopIteration as end:
            return Played(end.value, rounds, env)
        replies = [[answer(request, i, script) for i in range(request.n)] for request in rounds[-1]]


def make_turn(
    ids: Sequence[int] = (50, 51),
    prompt: Sequence[int] = (10, 11, 12),
    *,
    credit: float | None = 1.0,
    advantage: float | None = None,
    policy: str = "p",
    tree: int = 0,
    agent: str = "a",
    turn: int = 0,
    branch: int = 0,
    node: int = 0,
    group: int | None = None,
    selected: bool = True,
    cut: bool = False,
    text: str = "",
) -> Turn:
    return Turn(
        key=TurnKey(f"s{tree}", tree, agent, turn, branch, node),
        policy=policy,
        prompt_ids=tuple(prompt),
        completion=Completion(tuple(ids), tuple(-0.5 - i for i in range(len(ids))), text, "length" if cut else "stop"),
        action=Action(None, valid=True),
        rewards=Rewards(credit, 0.0, credit),
        done=False,
        selected=selected,
        group=group,
        advantage=advantage,
    )


def make_rollout(*turns: Turn, tree: int = 0, outcome: float = 0.0, **more: Any) -> Rollout:
    return Rollout(Sample(f"s{tree}", "?", "!"), tree, turns, outcome, more.pop("success_by_turn", (outcome,)), **more)
