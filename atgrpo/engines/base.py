"""The one interface behind which every sampler of text stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from atgrpo.types import Completion, Request


class EngineError(RuntimeError):
    """The engine failed: ours to report, never the model's fault."""


class AgreedError(EngineError):
    """Something failed on some rank of several, and every rank knows and stops at the same point."""


class EngineLostError(EngineError):
    """The process behind the engine died or fell silent. What was asked of it is lost; a ``Restartable`` may go on."""


@runtime_checkable
class Engine(Protocol):
    """Serves every policy of a team. Requests are independent: each finishes when its own completions are in.

    Constructed as ``Engine(models={policy: folder}, **settings)``; ``folder`` holds a Hugging Face model and tokenizer.
    """

    @property
    def name(self) -> str:
        """What is printed when the run starts."""

    @property
    def exact(self) -> bool:
        """True when its log-probs are the trainer's own numbers, so that no mismatch correction is needed."""

    def submit(self, ticket: int, request: Request) -> None:
        """Queues a request; its result is returned by some later ``step`` under the same ticket."""

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        """Advances the queued requests a little; returns those that finished, possibly none."""

    def load_weights(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replaces all weights of ``policy`` and forgets cached prefixes.

        Raises:
            EngineError: a parameter of the engine's model was not among ``weights``, or a name was unknown to it.
        """

    def sleep(self) -> None:
        """Gives accelerator memory back while the trainer works. Weights are loaded again after ``wake``."""

    def wake(self) -> None: ...

    def stats(self) -> Mapping[str, float]:
        """Counters since the last call, ready for logging (``prefix_cache_hit_rate``)."""

    def close(self) -> None:
        """Frees everything; the engine cannot be used afterwards."""


@runtime_checkable
class Restartable(Protocol):
    """An engine that can be started again after an ``EngineLostError``."""

    def restart(self) -> None:
        """Starts anew with the weights that every policy was last given. Requests and tickets are forgotten.

        Raises:
            EngineError: the new one did not start either.
        """


def generate(engine: Engine, requests: Sequence[Request]) -> list[list[Completion]]:
    """Runs ``requests`` to the end: ``[len(requests)][n]`` completions, in order."""
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request)
    done: dict[int, list[Completion]] = {}
    while len(done) < len(requests):
        done.update(engine.step())
    return [done[ticket] for ticket in range(len(requests))]
