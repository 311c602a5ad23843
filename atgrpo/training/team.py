"""The team at play: engine and tokenizers around the policies that are trained elsewhere."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

from torch import Tensor

from atgrpo.engines.base import AgreedError, Engine, EngineError
from atgrpo.envs.base import Environment
from atgrpo.ranks import ONE, Ranks
from atgrpo.rollout.collector import Collector
from atgrpo.rollout.samplers import Sampler
from atgrpo.types import Message, Rollout, Sample


class Policy(Protocol):
    """What the team needs of a policy."""

    folder: Path
    """Tokenizer and starting weights."""
    adapter: Path | None
    """Folder of the adapter that is trained on them, if only one is."""

    def export_weights(self) -> Iterator[tuple[str, Tensor]]:
        """What was trained: all weights under the names of the Hugging Face checkpoint, or the adapter's."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """What a rank tells the others instead of its rollouts."""

    text: str


class Team:
    """Plays samples with the current weights of its policies.

    Args:
        engine: Started here, as ``engine(models={policy: folder}, adapters={policy: folder})``, the latter if any.
        environment: Makes a fresh environment.
        agents: Role -> policy, in turn order; several roles may share a policy.
        policies: Name -> policy; the engine starts from their folders and follows their weights.
        max_prompt_tokens: An episode whose next prompt is longer ends there and is counted.
        workers: See ``Collector``.
        template: Further variables of the chat templates, such as ``enable_thinking``.
        ranks: The processes of the run, each of which has such a team and plays its part.
        ranks_per_engine: Of so many neighbours only the first one plays, with the GPUs of all.
    """

    def __init__(
        self,
        *,
        engine: Callable[..., Engine],
        environment: Callable[[], Environment],
        agents: Mapping[str, str],
        policies: Mapping[str, Policy],
        max_prompt_tokens: int,
        workers: int = 0,
        template: Mapping[str, Any] = MappingProxyType({}),
        ranks: Ranks = ONE,
        ranks_per_engine: int = 1,
    ) -> None:
        from transformers import AutoTokenizer

        check_roles(agents, environment())
        self.policies = policies
        self.ranks = ranks
        self.players = list(range(0, ranks.size, ranks_per_engine))
        self.template = template
        self.tokenizers: dict[str, Any] = {
            name: AutoTokenizer.from_pretrained(policy.folder) for name, policy in policies.items()
        }
        adapters = {name: policy.adapter for name, policy in policies.items() if policy.adapter is not None}
        self.engine = engine(
            models={name: policy.folder for name, policy in policies.items()},
            **({"adapters": adapters} if adapters else {}),
        )
        self.collector = Collector(self.engine, environment, agents, self.render, max_prompt_tokens, workers)

    def render(self, policy: str, messages: Sequence[Message]) -> tuple[int, ...]:
        """Messages as token ids by the policy's own chat template, up to where its answer starts."""
        ids = self.tokenizers[policy].apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False, **self.template
        )
        return tuple(ids)

    def push(self) -> None:
        """Wakes the engine and gives it every policy's current weights."""
        self.engine.wake()
        for name, policy in self.policies.items():
            self.engine.load_weights(name, policy.export_weights())

    def play(
        self,
        samples: Sequence[Sample],
        sampler: Sampler,
        *,
        seed: int,
        trees: Sequence[int] | None = None,
        on_done: Callable[[], object] = lambda: None,
    ) -> list[Rollout]:
        """One rollout per sample, in order, on every rank; see ``Collector.collect``.

        All ranks call it with the same samples and deal them out: a tree, and so a group, is never divided. What is
        sampled does not depend on how many ranks there are.

        Raises:
            AgreedError: some rank of several failed.
        """
        numbers = range(len(samples)) if trees is None else trees
        dealt = len(self.players)
        own = slice(self.players.index(self.ranks.rank), None, dealt) if self.ranks.rank in self.players else slice(0)
        part: list[Rollout] | _Failure
        failure: Exception | None = None
        try:
            part = self.collector.collect(samples[own], sampler, seed=seed, trees=numbers[own], on_done=on_done)
        except Exception as error:
            if self.ranks.size == 1:
                raise
            if not isinstance(error, EngineError):  # somebody's bug: the others are told its last line only
                traceback.print_exception(error)
            failure, part = error, _Failure(f"{type(error).__name__}: {error}")
        parts = self.ranks.gather(part)
        for rank, other in enumerate(parts):
            if isinstance(other, _Failure):
                raise AgreedError(f"rank {rank} could not collect its rollouts: {other.text}") from failure
        for _ in range(len(samples) - len(samples[own])):
            on_done()
        return [cast(list[Rollout], parts[self.players[i % dealt]])[i // dealt] for i in range(len(samples))]

    def close(self) -> None:
        """Stops the engine."""
        self.engine.close()


def check_roles(agents: Mapping[str, str], environment: Environment) -> None:
    """Refuses roles that the environment does not know.

    Raises:
        ValueError: there are some, or no roles at all.
    """
    if not hasattr(environment, "roles"):
        raise ValueError(f"environment {type(environment).__name__} got no roles, expected a tuple of their names")
    known = ", ".join(environment.roles)
    if not agents:
        raise ValueError(f"agents: got none, expected roles of the task: {known}")
    if strangers := [role for role in agents if role not in environment.roles]:
        raise ValueError(f"agents: got {', '.join(strangers)}, expected roles of the task: {known}")
