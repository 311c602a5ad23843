"""From scored turns to packed minibatches.

A row is one prompt followed by the responses to it, each a branch: the prompt is computed once for all K of them. With
one response per prompt this is the plain layout, so both are one code path.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atgrpo.functional.masked import Aggregation, aggregation_weights
from atgrpo.ranks import ONE, Ranks
from atgrpo.rollout.grouping import trajectory
from atgrpo.rollout.seeds import stream
from atgrpo.types import Minibatch, Rollout, Turn


@dataclass(frozen=True, slots=True)
class Batching:
    """How an iteration's turns become optimiser steps.

    Args:
        ppo_epochs: Passes over the iteration's turns.
        minibatches: Optimiser steps per pass and policy, whatever the number of turns.
        tokens_per_microbatch: Largest padded size (rows x longest row) of one forward pass; what does not fit is
            accumulated. A single row may be larger only if one prompt and one response already are.
        aggregation: ``token_mean``: every token of the step counts alike; ``sequence_mean``: every response counts
            alike; ``trajectory_mean``: every trajectory of the step counts alike, however many turns it has and however
            long they are (parallel sampler only); ``constant``: token sums over a constant length (Dr. GRPO,
            arXiv:2503.20783).
        constant_length: Of ``constant``.
        mask_truncated: Leave responses that hit the length limit out of the loss; their rewards still count in their
            groups.
    """

    ppo_epochs: int = 1
    minibatches: int = 1
    tokens_per_microbatch: int = 4096
    aggregation: Aggregation = "token_mean"
    constant_length: int | None = None
    mask_truncated: bool = False

    def __post_init__(self) -> None:
        self.weigh([1])
        for name in ("ppo_epochs", "minibatches", "tokens_per_microbatch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected 1 or more")

    @property
    def steps_per_iteration(self) -> int:
        """Optimiser steps of one policy in one iteration."""
        return self.ppo_epochs * self.minibatches

    def weigh(self, lengths: Sequence[int]) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
        """(weight of each token, share of the denominator) of responses with these lengths."""
        tensor = torch.tensor(lengths, dtype=torch.long)
        return aggregation_weights(tensor, self.aggregation, constant_length=self.constant_length)


Row = Sequence[Turn]
"""Turns that answered the same prompt."""


def trainable(turns: Iterable[Turn], batching: Batching) -> list[Turn]:
    """The turns that belong to the loss."""
    return [
        t
        for t in turns
        if t.advantage is not None
        and t.completion.token_ids
        and not (batching.mask_truncated and t.completion.finish_reason == "length")
    ]


def make_minibatches(
    rollouts: Sequence[Rollout],
    policies: Sequence[str],
    batching: Batching,
    *,
    seed: int,
    skip_zero: bool = True,
    ranks: Ranks = ONE,
) -> list[Minibatch]:
    """One iteration's training on this rank, in order: for each pass and step, each policy's micro-batches.

    ``rollouts`` are those of all ranks. Every rank makes the same plan from them and takes its part of each step: the
    same number of micro-batches of the same policies, filled up with ones that hold no trained tokens. Denominators
    are those of the whole step, so the ranks' gradients add up to what one rank would have.

    Every policy of ``policies`` takes exactly ``batching.steps_per_iteration`` steps; a step with nothing to learn is
    one minibatch without trained tokens, so that schedules and ranks stay in step. Turns of other policies (frozen
    ones, which only play) are left out. ``old_logprobs`` is None throughout.

    With ``skip_zero`` responses whose advantage is exactly 0 are not computed. They stay in the denominator, so the
    gradient is the same; right only when the loss has no term besides the policy gradient. Equal responses are
    computed once, with their weights added up.
    """
    by_policy: dict[str, list[Turn]] = {name: [] for name in policies}
    for rollout in rollouts:
        for turn in trainable(rollout.turns, batching):
            if turn.policy in by_policy:
                by_policy[turn.policy].append(turn)
    plan: list[Minibatch] = []
    for epoch in range(batching.ppo_epochs):
        steps = {
            name: _split(_rows(turns), batching.minibatches, stream(seed, "rows", name, epoch))
            for name, turns in by_policy.items()
        }
        for number in range(batching.minibatches):
            for name in policies:
                plan += _step(name, steps[name][number], batching, skip_zero, ranks)
    return plan


def _rows(turns: Iterable[Turn]) -> list[list[Turn]]:
    rows: dict[tuple[int, ...], list[Turn]] = defaultdict(list)
    for turn in turns:
        rows[turn.prompt_ids].append(turn)
    return list(rows.values())


def _split(rows: Sequence[Row], parts: int, rng: Random) -> list[list[Row]]:
    """Shuffled rows in ``parts`` of about equal numbers of response tokens."""
    shuffled = list(rows)
    rng.shuffle(shuffled)
    bins: list[list[Row]] = [[] for _ in range(parts)]
    load = [0] * parts
    for row in shuffled:
        lightest = load.index(min(load))
        bins[lightest].append(row)
        load[lightest] += sum(len(t.completion.token_ids) for t in row)
    return bins


def _step(policy: str, rows: Sequence[Row], batching: Batching, skip_zero: bool, ranks: Ranks) -> list[Minibatch]:
    if batching.aggregation == "trajectory_mean":
        rows = by_share(rows)
    turns = [t for row in rows for t in row]
    _, shares = batching.weigh([len(t.completion.token_ids) for t in turns])
    # An integer in every mode, up to the rounding of a trajectory's shares.
    denominator = float(round(sum(s * t.count for s, t in zip(shares.tolist(), turns, strict=True))))
    computed: list[Row] = []
    for row in rows:
        kept = [t for t in row if t.advantage or not skip_zero]
        computed += _cut(_merged(kept), batching.tokens_per_microbatch)
    computed.sort(key=_length, reverse=True)
    # No more than one rank's share, so that a step which one micro-batch could hold is work for every rank.
    share = math.ceil(len(computed) * max(map(_length, computed), default=0) / ranks.size)
    batches = _fill(computed, min(batching.tokens_per_microbatch, share))
    # Neighbours are about equally long: dealt out in turn, every rank gets about as much.
    rounds = math.ceil(len(batches) / ranks.size) or 1
    own = [*batches[ranks.rank :: ranks.size], []][:rounds]
    return [pack(policy, b, batching, denominator, last=i == rounds - 1) for i, b in enumerate(own)]


def by_share(rows: Sequence[Row]) -> list[Row]:
    """Turns that count as their share of their trajectory's tokens in these rows."""
    tokens: Counter[Hashable] = Counter()
    for turn in (t for row in rows for t in row):
        tokens[trajectory(turn)] += len(turn.completion.token_ids)
    return [[replace(t, count=len(t.completion.token_ids) / tokens[trajectory(t)]) for t in row] for row in rows]


def _merged(row: Row) -> list[Turn]:
    """Equal responses with equal advantages as one that weighs as much as all: the same gradient for less work."""
    alike: dict[tuple[tuple[int, ...], float | None], list[Turn]] = defaultdict(list)
    for turn in row:
        alike[turn.completion.token_ids, turn.advantage].append(turn)
    return [replace(turns[0], count=sum(t.count for t in turns)) for turns in alike.values()]


def _length(row: Row) -> int:
    return len(row[0].prompt_ids) + sum(len(t.completion.token_ids) for t in row)


def _cut(row: Row, budget: int) -> list[Row]:
    """A row over the budget as several rows with the same prompt."""
    pieces: list[list[Turn]] = []
    for turn in row:
        if pieces and _length([*pieces[-1], turn]) <= budget:
            pieces[-1].append(turn)
        else:
            pieces.append([turn])
    return list(pieces)


def _fill(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Rows, longest first, in batches of at most ``budget`` padded tokens."""
    batches: list[list[Row]] = []
    for row in rows:
        if batches and (len(batches[-1]) + 1) * _length(batches[-1][0]) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _sampled(turn: Turn) -> Tensor:
    """The sampler's log-probs; one that is missing would pass as probability 1, or be broadcast from its neighbour."""
    completion = turn.completion
    known = [logprob for logprob in completion.logprobs if math.isfinite(logprob)]
    if not len(known) == len(completion.logprobs) == len(completion.token_ids):
        found = f"{len(known)} finite numbers among {len(completion.logprobs)}"
        raise ValueError(f"logprobs of {turn.key}: got {found}, expected one per token, {len(completion.token_ids)}")
    return torch.tensor(known)


def pack(policy: str, rows: Sequence[Row], batching: Batching, denominator: float, *, last: bool) -> Minibatch:
    """Lays rows out as tensors. No rows gives one row of two tokens, neither of them trained.

    Raises:
        ValueError: a response without a finite log-prob for each of its tokens.
    """
    width = max((_length(row) for row in rows), default=2)
    size = (max(len(rows), 1), width)
    ids, positions = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.long)
    branch, source = torch.full(size, -1), torch.zeros(size, dtype=torch.long)
    mask = torch.zeros(size, dtype=torch.bool)
    logprobs, advantages, weights = torch.zeros(size), torch.zeros(size), torch.zeros(size)
    if not rows:
        branch[:] = 0
    for b, row in enumerate(rows):
        prompt = row[0].prompt_ids
        end = len(prompt)
        per_token, _ = batching.weigh([len(turn.completion.token_ids) for turn in row])
        ids[b, :end] = torch.tensor(prompt)
        positions[b, :end] = torch.arange(end)
        branch[b, :end] = 0
        for k, turn in enumerate(row, start=1):
            n = len(turn.completion.token_ids)
            span = slice(end, end + n)
            ids[b, span] = torch.tensor(turn.completion.token_ids)
            positions[b, span] = torch.arange(len(prompt), len(prompt) + n)
            branch[b, span] = k
            source[b, span] = torch.arange(end - 1, end + n - 1)
            source[b, end] = len(prompt) - 1
            mask[b, span] = True
            logprobs[b, span] = _sampled(turn)
            advantages[b, span] = turn.advantage or 0.0
            weights[b, span] = per_token[k - 1] * turn.count
            end += n
    return Minibatch(
        policy, ids, positions, branch, source, mask, logprobs, None, None, advantages, weights, denominator, last
    )
