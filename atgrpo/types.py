"""Every data type that crosses a room of the house. Frozen; a later stage makes a changed copy with ``replace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Message = Mapping[str, str]
"""One chat message: ``role`` (system, user, assistant) and ``content``."""

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One task instance."""

    id: str
    """Unique within its dataset; two samples with the same text still have different ids."""
    prompt: str
    """What the agents are asked."""
    answer: str
    """The gold answer. Never shown to an agent."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What only the environment needs (difficulty, tests, a puzzle's grid)."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one agent sees before it acts."""

    agent: str
    """Role name."""
    messages: Sequence[Message]
    """The chat that is rendered with the policy's own template, ending where the agent speaks."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How completions are drawn: from the whole distribution, as cutting it (top-p, top-k) renormalises log-probs."""

    max_tokens: int
    """Longest completion, end-of-sequence token included."""
    temperature: float = 1.0
    """0 is greedy."""


@dataclass(frozen=True, slots=True)
class Request:
    """K completions of one prompt, asked of the engine."""

    policy: str
    """Which policy answers."""
    prompt_ids: tuple[int, ...]
    """Token ids, template and generation header included."""
    n: int
    """How many completions (K)."""
    sampling: Sampling
    seed: int
    """Fixes the completions whatever else is in the batch; completion i draws from ``seed + i``."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled response."""

    token_ids: tuple[int, ...]
    """The sampled ids, the end-of-sequence token included where it was sampled. Never re-encoded text."""
    logprobs: tuple[float, ...]
    """Log-prob of each id under the sampling distribution (after temperature); same length as ``token_ids``."""
    text: str
    """The ids decoded without special tokens."""
    finish_reason: FinishReason
    """``length`` when the response was cut."""


@dataclass(frozen=True, slots=True)
class Action:
    """A response as the environment understood it."""

    value: Any
    """Environment-specific; None when nothing could be read."""
    valid: bool
    """False is data (a malformed response with its reward), never an error."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one action did."""

    team_reward: float | None
    """How good the team's state is now (a level, not an increment). None: it could not be judged; excluded, never 0."""
    local_reward: float | None
    """What the acting agent's own step earned. None as above."""
    done: bool
    """The episode is over."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Anything about the step; numbers and truth values become metrics of the agent."""


@dataclass(frozen=True, slots=True)
class TurnKey:
    """Where a turn stands. A group is made of the turns that agree on some of these fields."""

    sample_id: str
    tree: int
    """Instance number, unique in the whole iteration over all ranks: the same sample drawn twice is two trees."""
    agent: str
    turn: int
    """0-based."""
    branch: int
    """Tree sampler: candidate number within its node. Parallel sampler: trajectory number."""
    node: int = 0
    """0 on the shared path (and for the parallel sampler). Turns that continue the candidates of step j (counted from 0
    along the path) carry j + 1, so that they never join a group of the path itself."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """A turn's rewards. None is missing: the turn is excluded from every baseline and from the loss."""

    team: float | None
    local: float | None
    credit: float | None
    """What the advantage is computed from: ``alpha * team + local`` under the chosen credit rule."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One response of one agent: the unit that is trained on."""

    key: TurnKey
    policy: str
    prompt_ids: tuple[int, ...]
    completion: Completion
    action: Action
    rewards: Rewards
    done: bool
    """The episode was over after this turn."""
    selected: bool
    """This candidate's state is where the team went on (always True for the parallel sampler)."""
    count: float = 1
    """As how many responses it weighs: equal ones add up, and under ``trajectory_mean`` each is its share of its
    trajectory. Other than 1 only on the way into a minibatch."""
    group: int | None = None
    """Number of the group it was scored in, set by the advantage callback; None means excluded."""
    advantage: float | None = None
    """Set by the advantage callback; None afterwards means excluded."""
    info: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the environment gave for this step, for metrics."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Everything grown from one sample."""

    sample: Sample
    tree: int
    turns: tuple[Turn, ...]
    """In the order they were sampled."""
    outcome: float
    """The team's success at the end of the selected path, 0 to 1 (parallel: mean over those judged); NaN: unjudged."""
    success_by_turn: tuple[float, ...]
    """Length T: success had the team stopped after turn t; a finished episode keeps its value."""
    observations: Mapping[tuple[str, int], Observation] = field(default_factory=dict)
    """(agent, turn) -> what was seen on the selected path; for people, not for training."""
    overlong: bool = False
    """Growth ended early because an agent's rendered prompt was over the limit; counted, never cut."""
    extra_tokens: int = 0
    """Sampled tokens that belong to no turn here (playouts that are not trained on)."""


@dataclass(frozen=True, slots=True)
class Minibatch:
    """One micro-batch of one policy, packed: a row is a prompt followed by its completions, each a branch."""

    policy: str
    token_ids: Int[Tensor, "B T"]
    """Padded at the end with 0; ``branch_ids`` says what is padding."""
    position_ids: Int[Tensor, "B T"]
    """Positions restart after the prompt for every branch."""
    branch_ids: Int[Tensor, "B T"]
    """0 prompt, 1..K completions, -1 padding. A token attends to the prompt and to its own branch."""
    source: Int[Tensor, "B T"]
    """Index in the row of the token whose output predicts this one (the token before it in its branch)."""
    loss_mask: Bool[Tensor, "B T"]
    """True exactly at sampled tokens."""
    sampler_logprobs: Float[Tensor, "B T"]
    """As the engine sampled them; 0 where ``loss_mask`` is False."""
    old_logprobs: Float[Tensor, "B T"] | None
    """The trainer's own, before the iteration's first update. None: this is the first, so they equal the current."""
    ref_logprobs: Float[Tensor, "B T"] | None
    """The reference policy's; None where the loss has no KL penalty."""
    advantages: Float[Tensor, "B T"]
    weights: Float[Tensor, "B T"]
    """Aggregation weight of each token; the step's loss is sum(weights * loss) / denominator."""
    denominator: float
    """Of the whole optimiser step: over all its micro-batches and all ranks."""
    last: bool
    """The optimiser steps after this micro-batch."""

    def to(self, device: torch.device | str) -> Minibatch:
        """The same minibatch with every tensor on ``device``."""
        moved: dict[str, Any] = {
            f.name: v.to(device) for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)
