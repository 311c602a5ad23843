"""Grows many trees at once over one engine: a tree advances as soon as its own candidates are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tqdm import tqdm

from atgrpo.engines.base import Engine, EngineLostError, Restartable
from atgrpo.envs.base import Environment
from atgrpo.rollout.endpoint_calls import Answer, Calls
from atgrpo.rollout.samplers import Growing, Sampler
from atgrpo.rollout.walk import Episode
from atgrpo.types import Completion, Message, Request, Rollout, Sample

Render = Callable[[str, Sequence[Message]], tuple[int, ...]]


@dataclass(frozen=True)
class Collector:
    """Plays samples with the team.

    Args:
        engine: Serves every policy of the team.
        environment: Makes a fresh environment.
        agents: Role -> policy, in turn order.
        render: (policy, messages) -> prompt token ids.
        max_prompt_tokens: An episode whose next prompt is longer ends there and is counted.
        workers: Threads that parse and judge responses while the engine goes on; 0 does so in between. Worth it where
            a step is slow (running code).
    """

    engine: Engine
    environment: Callable[[], Environment]
    agents: Mapping[str, str]
    render: Render
    max_prompt_tokens: int
    workers: int = 0

    def collect(
        self,
        samples: Sequence[Sample],
        sampler: Sampler,
        *,
        seed: int,
        trees: Sequence[int] | None = None,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Rollout]:
        """One rollout per sample, in order. ``trees`` are their numbers, 0, 1, ... if None: draws depend on them.

        An engine that is lost is started again if it can be, and what was unfinished is grown anew, to the same end.

        Raises:
            EngineLostError: the engine was lost for good, or twice without finishing a tree in between.
        """
        numbers = range(len(samples)) if trees is None else trees
        episodes = list(zip(samples, numbers, strict=True))
        done: dict[int, Rollout] = {}
        kept_before: int | None = None
        while len(done) < len(samples):
            left = [i for i in range(len(samples)) if i not in done]
            growths = {i: sampler.grow(self._episode(*episodes[i], seed)) for i in left}
            try:
                self._drive(_Drive(self.engine, growths, on_done, done))
            except EngineLostError as error:
                if not isinstance(self.engine, Restartable) or len(done) == kept_before:
                    raise
                kept_before = len(done)
                self.engine.restart()
                tqdm.write(f"{error}; started again, {len(samples) - len(done)} of {len(samples)} trees are grown anew")
            finally:
                for growth in growths.values():
                    growth.close()  # threads that wait for an answer are told
        return [done[i] for i in range(len(samples))]

    def _drive(self, drive: _Drive) -> None:
        if not self.workers:
            drive.run(None)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            drive.run(pool)

    def _episode(self, sample: Sample, tree: int, seed: int) -> Episode:
        env = self.environment()
        env.reset(sample)
        return Episode(sample, tree, env, self.agents, self.render, seed, self.max_prompt_tokens)


@dataclass
class _Open:
    """A growth that waits for ``missing`` of the requests it asked."""

    replies: list[list[Completion]]
    missing: int


@dataclass
class _Drive:
    engine: Engine
    growths: Mapping[int, Growing]
    on_done: Callable[[], object]
    results: dict[int, Rollout]
    pool: ThreadPoolExecutor | None = None
    open: dict[int, _Open] = field(default_factory=dict)
    tickets: dict[int, Answer] = field(default_factory=dict)
    running: dict[Future[Any], int] = field(default_factory=dict)
    """What is done somewhere else -> the growth that goes on then."""
    issued: int = 0

    def run(self, pool: ThreadPoolExecutor | None) -> None:
        """To the end of every growth, into ``results``."""
        self.pool = pool
        for i in self.growths:
            self._advance(i, None)
        while self.tickets or self.running:
            if self.tickets:
                for ticket, completions in self.engine.step():
                    self.tickets.pop(ticket)(completions)
            # The engine has work: only look at what is ready. It has none: wait for a tree to ask for something.
            finished, _ = wait(self.running, timeout=0 if self.tickets else None, return_when=FIRST_COMPLETED)
            for future in finished:
                self._take(self.running.pop(future), future.result())

    def _advance(self, i: int, replies: list[list[Completion]] | None) -> None:
        if self.pool is None:
            self._take(i, _send(self.growths[i], replies))
        else:
            self.running[self.pool.submit(_send, self.growths[i], replies)] = i

    def _take(self, i: int, outcome: list[Request] | Calls | Rollout) -> None:
        if isinstance(outcome, Rollout):
            self.results[i] = outcome
            self.on_done()
        elif isinstance(outcome, Calls):
            for request, answer in outcome.take():
                self._submit(request, answer)
            if outcome.ended:
                self._advance(i, None)
            else:
                self.running[outcome.news()] = i
        else:
            self.open[i] = _Open([[]] * len(outcome), len(outcome))
            for slot, request in enumerate(outcome):
                self._submit(request, partial(self._answer, i, slot))

    def _submit(self, request: Request, answer: Answer) -> None:
        self.tickets[self.issued] = answer
        self.engine.submit(self.issued, request)
        self.issued += 1

    def _answer(self, i: int, slot: int, completions: list[Completion]) -> None:
        waiting = self.open[i]
        waiting.replies[slot] = completions
        waiting.missing -= 1
        if not waiting.missing:
            self._advance(i, self.open.pop(i).replies)


def _send(growth: Growing, replies: Any) -> list[Request] | Calls | Rollout:
    try:
        return growth.send(replies)
    except StopIteration as end:
        rollout: Rollout = end.value
        return rollout
