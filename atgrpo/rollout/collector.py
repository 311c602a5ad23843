"""Grows many trees at once over one engine: a tree advances as soon as its own candidates are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from atgrpo.engines.base import Engine
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
        first_tree: int = 0,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Rollout]:
        """One rollout per sample, in order, each sample being a tree of its own numbered from ``first_tree``."""
        growths = [sampler.grow(self._episode(s, first_tree + i, seed)) for i, s in enumerate(samples)]
        drive = _Drive(self.engine, growths, on_done)
        if not self.workers:
            return drive.run(None)
        with ThreadPoolExecutor(self.workers) as pool:
            return drive.run(pool)

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
    growths: Sequence[Growth[Rollout]]
    on_done: Callable[[], object]
    results: dict[int, Rollout] = field(default_factory=dict)
    open: dict[int, _Open] = field(default_factory=dict)
    tickets: dict[int, tuple[int, int]] = field(default_factory=dict)
    issued: int = 0

    def run(self, pool: ThreadPoolExecutor | None) -> list[Rollout]:
        """To the end of every growth."""
        running: dict[Future[list[Request] | Rollout], int] = {}

        def advance(i: int, replies: list[list[Completion]] | None) -> None:
            if pool is None:
                self._take(i, _send(self.growths[i], replies))
            else:
                running[pool.submit(_send, self.growths[i], replies)] = i

        for i in range(len(self.growths)):
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
        return [self.results[i] for i in range(len(self.growths))]

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
