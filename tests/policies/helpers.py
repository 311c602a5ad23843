"""Losses and gradients of a policy on minibatches, without a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from atgrpo.functional.losses import aggregate, ppo_clip_loss
from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.types import Minibatch


def gradients(policy: CausalLMPolicy, batches: Iterable[Minibatch], temperature: float = 1.0) -> dict[str, Tensor]:
    """Of the first update's loss over all micro-batches of a step."""
    policy.zero_grad()
    for batch in batches:
        logprobs = policy(batch, temperature).logprobs
        ppo = ppo_clip_loss(logprobs, logprobs.detach(), batch.advantages, batch.loss_mask, eps_low=0.2, eps_high=0.2)
        aggregate(ppo.loss, batch.weights, batch.loss_mask, batch.denominator).backward()
    return {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}


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
