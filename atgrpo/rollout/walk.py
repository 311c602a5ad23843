"""One path through an episode, written as a generator: it yields requests and is sent their completions.

A tree and a trajectory are the same walk: at every step an agent samples n candidates from the one shared state, each
is applied to a fork and credited, one is chosen, and its state is where the walk goes on. A trajectory has n = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from atgrpo.envs.base import Environment
from atgrpo.envs.contract import returned, rewarded, success_of
from atgrpo.rollout.seeds import stable_seed
from atgrpo.types import Action, Completion, Message, Observation, Request, Sample, Sampling, StepResult

T = TypeVar("T")
Growth = Generator[list[Request], list[list[Completion]], T]
"""Yields requests, is sent one list of completions per request, returns a T."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One sample to be played, with all that playing needs."""

    sample: Sample
    tree: int
    env: Environment
    """Already reset."""
    agents: Mapping[str, str]
    """Role -> policy, in turn order."""
    render: Callable[[str, Sequence[Message]], tuple[int, ...]]
    """(policy, messages) -> prompt token ids, by that policy's own chat template."""
    seed: int
    """Of the iteration; every draw derives its own stream from it."""
    max_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Stage:
    """The agents that act on the same state: one of them in sequence, all of them in parallel."""

    turn: int
    agents: tuple[str, ...]
    closes_turn: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """One response and the state it led to."""

    branch: int
    completion: Completion
    action: Action
    result: StepResult
    env: Environment


@dataclass(frozen=True, slots=True)
class Node:
    """The candidates of one agent in one turn, all from one state."""

    stage: int
    """Number of the stage along the path; agents that act in parallel share it."""
    agent: str
    turn: int
    prompt_ids: tuple[int, ...]
    observation: Observation
    candidates: tuple[Candidate, ...]
    credits: tuple[float | None, ...]
    chosen: int

    @property
    def pick(self) -> Candidate:
        """The candidate the walk went on from."""
        return self.candidates[self.chosen]


@dataclass(slots=True)
class Path:
    """A finished walk."""

    env: Environment
    nodes: list[Node] = field(default_factory=list)
    success_by_turn: list[float] = field(default_factory=list)
    overlong: bool = False
    """It ended because a rendered prompt was over the limit."""
    team_reward: float | None = None
    """After the last stage, all its agents' chosen actions applied; None for an empty path or a judge that failed."""


Judge = Callable[[int, Sequence[Candidate]], Growth[tuple[float | None, ...]]]
"""(stage number, candidates) -> their credits; may ask for more completions on the way."""
Choose = Callable[[int, str, Sequence[float | None]], int]
"""(turn, agent, credits) -> index of the candidate to go on from."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How one path is grown: the settings that stay the same over its steps."""

    episode: Episode
    sampling: Callable[[str], Sampling]
    branches: Callable[[str], int]
    judge: Judge
    choose: Choose
    label: tuple[int | str, ...] = ()
    """Tells this path's random streams from its siblings'."""
    branch: int = 0
    """Branch number of the first candidate."""

    def grow(self, env: Environment, stages: Sequence[Stage], *, start: int = 0) -> Growth[Path]:
        """Plays ``stages[start:]`` from ``env``, which stays as it is."""
        path = Path(env)
        for index in range(start, len(stages)):
            if path.env.done:
                break
            stage = stages[index]
            asked = [self._ask(path.env, agent, stage.turn) for agent in stage.agents]
            if any(len(request.prompt_ids) > self.episode.max_prompt_tokens for _, request in asked):
                path.overlong = True
                break
            replies = yield [request for _, request in asked]
            nodes = []
            for (observation, request), completions in zip(asked, replies, strict=True):
                node = yield from self._node(path.env, index, stage, observation, request, completions)
                nodes.append(node)
            path.nodes += nodes
            path.env, path.team_reward = _merge(path.env, nodes)
            if stage.closes_turn or path.env.done:
                path.success_by_turn.append(success_of(path.env))
        return path

    def _ask(self, env: Environment, agent: str, turn: int) -> tuple[Observation, Request]:
        ep = self.episode
        observation = returned(env, "observe", env.observe(agent), Observation)
        policy = ep.agents[agent]
        seed = stable_seed(ep.seed, ep.tree, *self.label, agent, turn)
        ids = ep.render(policy, observation.messages)
        return observation, Request(policy, ids, self.branches(agent), self.sampling(agent), seed)

    def _node(
        self,
        env: Environment,
        index: int,
        stage: Stage,
        observation: Observation,
        request: Request,
        completions: Sequence[Completion],
    ) -> Growth[Node]:
        agent = observation.agent
        candidates = []
        for i, completion in enumerate(completions):
            fork = env.fork()
            action = returned(env, "parse", fork.parse(agent, completion.text), Action)
            result = rewarded(env, fork.step(agent, action))
            candidates.append(Candidate(self.branch + i, completion, action, result, fork))
        credits = yield from self.judge(index, candidates)
        chosen = self.choose(stage.turn, agent, credits)
        return Node(index, agent, stage.turn, request.prompt_ids, observation, tuple(candidates), credits, chosen)


def _merge(env: Environment, nodes: Sequence[Node]) -> tuple[Environment, float | None]:
    """State and team reward after the chosen actions of agents that acted at once, applied in turn order."""
    if len(nodes) == 1:
        return nodes[0].pick.env, nodes[0].pick.result.team_reward
    merged = env.fork()
    team: float | None = None
    for node in nodes:
        if merged.done:  # an earlier agent's action has ended the episode
            break
        team = merged.step(node.agent, node.pick.action).team_reward
    return merged, team


def together(growths: Sequence[Growth[T]]) -> Growth[list[T]]:
    """Runs several growths side by side as one; returns their results in order."""
    results: dict[int, T] = {}
    waiting: dict[int, list[Request]] = {}

    def advance(i: int, replies: list[list[Completion]] | None) -> None:
        try:
            waiting[i] = growths[i].send(replies)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as end:
            results[i] = end.value

    for i in range(len(growths)):
        advance(i, None)
    while waiting:
        asked = dict(waiting)
        waiting.clear()
        replies = iter((yield [request for requests in asked.values() for request in requests]))
        for i, requests in asked.items():
            advance(i, [next(replies) for _ in requests])
    return [results[i] for i in range(len(growths))]


def uncredited(index: int, candidates: Sequence[Candidate]) -> Growth[tuple[float | None, ...]]:
    """The judge of a path whose credits are worked out after it has ended."""
    yield from ()
    return (None,) * len(candidates)
