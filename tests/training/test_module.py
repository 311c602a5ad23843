"""The module under a real trainer, on micro-batches written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.rollout.collate import Batching, pack
from atgrpo.training.loss import LossSettings
from atgrpo.training.minibatches import Minibatches
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.schedule import Schedule
from atgrpo.types import Minibatch
from tests.rollout.helpers import make_turn
from tests.training.bare import bare_trainer

RESPONSES = [(40, 41, 3), (50, 51, 52, 3), (60, 3), (70, 71, 72, 73, 3)]
TOKENS = float(sum(map(len, RESPONSES)))


def microbatches(policy: str, advantages: Sequence[float], step: int = 4) -> list[Minibatch]:
    """One response in each; the optimiser steps after every ``step``-th."""
    turns = [
        make_turn(RESPONSES[i % len(RESPONSES)], range(10, 16), advantage=a, policy=policy)
        for i, a in enumerate(advantages)
    ]
    return [pack(policy, [[t]], Batching(), TOKENS, last=i % step == step - 1) for i, t in enumerate(turns)]


def train(
    batches: Sequence[Minibatch],
    *,
    rate: float = 1e-2,
    schedule: Schedule | None = None,
    steps: int = 100,
    names: Sequence[str] = "ab",
    kl: float = 0.0,
) -> MultiPolicyModule:
    """One epoch of ``batches``."""
    module = MultiPolicyModule(
        policies=dict.fromkeys(names, partial(CausalLMPolicy, "tiny")),
        optimizers=dict.fromkeys(names, partial(torch.optim.AdamW, lr=rate, weight_decay=0.0)),
        schedule=schedule or Schedule(),
        total_steps=steps,
        loss=LossSettings(kl=kl),
        clip_norm=1.0,
        temperature=1.0,
    )
    trainer = bare_trainer(
        max_epochs=1,
    )
    trainer.fit(module, Minibatches(0, batches))
    return module


def weights(module: MultiPolicyModule, policy: str) -> dict[str, Tensor]:
    return dict(module.policies[policy].state_dict())


def parameters(policy: nn.Module) -> dict[str, Tensor]:
    named = policy.named_parameters()
    return {name: parameter.detach() for name, parameter in named if not name.startswith("reference.")}


def assert_equal(got: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    torch.testing.assert_close(dict(got), dict(expected), rtol=0, atol=0)


def moved(module: MultiPolicyModule, policy: str) -> list[bool]:
    """For each parameter, whether it left its start."""
    start = parameters(CausalLMPolicy("tiny"))
    return [not torch.equal(p, start[name]) for name, p in parameters(module.policies[policy]).items()]


# PyTorch Lightning issue 591: one optimiser's backward pass left gradients that another's step took up.
def test_steps_of_interleaved_policies_are_those_of_each_policy_alone() -> None:
    of_a, of_b = microbatches("a", [1.0, -2.0, 0.5, 1.5] * 2), microbatches("b", [-1.0, 0.3, 2.0, -0.7] * 2)
    both = train([batch for pair in zip(of_a, of_b, strict=True) for batch in pair])
    assert all(moved(both, "a")) and all(moved(both, "b"))
    assert_equal(weights(both, "a"), weights(train(of_a), "a"))
    assert_equal(weights(both, "b"), weights(train(of_b, names="b"), "b"))
    assert all(parameter.grad is None for parameter in both.parameters())


def test_one_step_at_rate_one_changes_every_parameter_of_its_policy_and_none_of_the_others() -> None:
    module = train(microbatches("a", [1.0, -2.0, 0.5, 1.5]), rate=1.0)
    assert moved(module, "a") == [True] * len(list(module.policies["a"].parameters()))
    assert moved(module, "b") == [False] * len(list(module.policies["b"].parameters()))


def test_eight_microbatches_of_which_four_make_a_step_are_two_steps_of_each_schedule() -> None:
    batches = microbatches("a", [1.0, -2.0] * 4) + microbatches("b", [0.5, -1.0] * 4)
    module = train(batches, rate=1.0, schedule=Schedule(name="linear"), steps=2)
    assert [s.last_epoch for s in module.lr_schedulers()] == [2, 2]  # type: ignore[union-attr]
    assert [[rate for _, rate in module.stats[policy].steps] for policy in "ab"] == [[1.0, 0.5]] * 2
    assert [s.get_last_lr() for s in module.lr_schedulers()] == [[0.0], [0.0]]  # type: ignore[union-attr]


def test_a_step_without_anything_to_learn_moves_the_schedule_and_no_weight() -> None:
    empty = [pack(policy, [], Batching(), 0.0, last=True) for policy in "abab"]
    module = train(empty, schedule=Schedule(name="linear"), rate=1.0, steps=2)
    assert [s.last_epoch for s in module.lr_schedulers()] == [2, 2]  # type: ignore[union-attr]
    assert not any(moved(module, "a") + moved(module, "b"))


def with_reference(batches: Sequence[Minibatch]) -> list[Minibatch]:
    reference = CausalLMPolicy("tiny", reference=True)
    return [replace(batch, ref_logprobs=reference.reference_logprobs(batch, 1.0)) for batch in batches]


def test_at_the_reference_a_penalty_moves_nothing() -> None:
    module = train(with_reference(microbatches("a", [0.0] * 4)), kl=1.0, rate=1.0)
    assert not any(moved(module, "a"))
    assert module.policies["a"].reference is not None
    assert module.stats["a"].metrics()["kl_to_reference"] == 0.0


def test_a_penalty_keeps_the_policy_closer_to_its_reference() -> None:
    batches = with_reference(microbatches("a", [1.0, -2.0, 0.5, 1.5] * 5))
    free, held = (train(batches, kl=kl).stats["a"].metrics()["kl_to_reference"] for kl in (1e-9, 100.0))
    assert held < 0.7 * free
