"""Losses and gradients of a policy on minibatches, without a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from atgrpo.functional.losses import aggregate, ppo_clip_loss
from atgrpo.policies.packed import PackedPolicy
from atgrpo.rollout.collate import Batching, pack
from atgrpo.types import Minibatch
from tests.rollout.helpers import make_turn

PROMPT = tuple(range(10, 22))
RESPONSES = [(40, 41, 42, 43, 3), (50, 3), (40, 41, 60, 61, 62, 63)]
TURNS = [make_turn(ids, PROMPT, advantage=a) for ids, a in zip(RESPONSES, (1.0, -2.0, 0.5), strict=True)]
TOKENS = float(sum(map(len, RESPONSES)))


def packed(*rows: list[Any]) -> Minibatch:
    return pack("p", rows or [TURNS], Batching(), TOKENS, last=True)


def plain() -> list[Minibatch]:
    return [packed([turn]) for turn in TURNS]


def gradients(policy: PackedPolicy, batches: Iterable[Minibatch], temperature: float = 1.0) -> dict[str, Tensor]:
    """Of the first update's loss over all micro-batches of a step."""
    policy.zero_grad()
    for batch in batches:
        backward(policy, batch, temperature)
    return {name: parameter.grad.clone() for name, parameter in policy.trained_parameters()}


def backward(policy: PackedPolicy, batch: Minibatch, temperature: float = 1.0) -> None:
    logprobs = policy(batch, temperature).logprobs
    ppo = ppo_clip_loss(logprobs, logprobs.detach(), batch.advantages, batch.loss_mask, eps_low=0.2, eps_high=0.2)
    aggregate(ppo.loss, batch.weights, batch.loss_mask, batch.denominator).backward()


def learn(policy: PackedPolicy, steps: int = 3, rate: float = 1e-2) -> None:
    """Some steps of a real optimiser."""
    optimizer = torch.optim.AdamW([parameter for _, parameter in policy.trained_parameters()], lr=rate)
    for _ in range(steps):
        backward(policy, packed())
        optimizer.step()
        optimizer.zero_grad()


def assert_same(got: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-5) -> None:
    assert got.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(got[name], gradient, atol=atol, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    assert max(float(gradient.abs().max()) for gradient in expected.values()) > 100 * atol, "nothing to compare"


def of_branch(values: Tensor, batch: Minibatch, branch: int, row: int = 0) -> Tensor:
    """A row's values at the trained tokens of one branch."""
    return values[row, batch.loss_mask[row] & (batch.branch_ids[row] == branch)]


def reference(model: torch.nn.Module, prompt: Sequence[int], ids: Sequence[int], temperature: float = 1.0) -> Tensor:
    """Log-probs of ``ids`` after ``prompt`` by transformers' own plain forward pass."""
    logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
