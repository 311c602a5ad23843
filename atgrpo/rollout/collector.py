"""Grows many trees at once over one engine: a tree advances as soon as its own candidates are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from atgrpo.engines.base import Engine, EngineLostError, Restartable
from atgrpo.envs.base import Environment
from atgrpo.rollout.samplers import Sampler
from atgrpo.rollout.walk import Episode, Growth
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
    growths: Mapping[int, Growth[Rollout]]
    on_done: Callable[[], object]
    results: dict[int, Rollout]
    open: dict[int, _Open] = field(default_factory=dict)
    tickets: dict[int, tuple[int, int]] = field(default_factory=dict)
    issued: int = 0

    def run(self, pool: ThreadPoolExecutor | None) -> None:
        """To the end of every growth, into ``results``."""
        running: dict[Future[list[Request] | Rollout], int] = {}

        def advance(i: int, replies: list[list[Completion]] | None) -> None:
            if pool is None:
                self._take(i, _send(self.growths[i], replies))
            else:
                running[pool.submit(_send, self.growths[i], replies)] = i

        for i in self.growths:
            advance(i, None)
        while self.tickets or running:
            if self.tickets:
                for ticket, completions in self.engine.step():
                    i, slot = self.tickets.pop(ticket)
                    waiting = self.open[i]
                    waiting.replies[slot] = completions
                    waiting.missing -= 1
                    if not waiting.missing:
                        advance(i, self.open.pop(i).replies)
            # The engine has work: only look at what is ready. It has none: wait for a tree to ask for something.
            finished, _ = wait(running, timeout=0 if self.tickets else None, return_when=FIRST_COMPLETED)
            for future in finished:
                self._take(running.pop(future), future.result())

    def _take(self, i: int, outcome: list[Request] | Rollout) -> None:
        if isinstance(outcome, Rollout):
            self.results[i] = outcome
            self.on_done()
            return
        self.open[i] = _Open([[]] * len(outcome), len(outcome))
        for slot, request in enumerate(outcome):
            self.tickets[self.issued] = (i, slot)
            self.engine.submit(self.issued, request)
            self.issued += 1


def _send(growth: Growth[Rollout], replies: Any) -> list[Request] | Rollout:
    try:
        return growth.send(replies)
    except StopIteration as end:
        rollout: Rollout = end.value
        return rollout
