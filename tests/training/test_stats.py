from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from atgrpo.functional.losses import PPOLoss
from atgrpo.training.stats import PolicyStats


def tensors(*rows: list[float]) -> list[Tensor]:
    return [torch.tensor([row]) for row in rows]


def add(stats: PolicyStats, mask: list[bool], ratio: list[float], clipped: list[bool], loss: float) -> None:
    n = len(mask)
    logprobs, old, sampler = tensors([-1.0] * n, [-1.0] * n, [-1.5] * n)
    entropy = torch.arange(n).float()[None]
    ppo = PPOLoss(torch.zeros(1, n), torch.tensor([ratio]), torch.tensor([clipped]))
    stats.add(
        mask=torch.tensor([mask]),
        logprobs=logprobs,
        old_logprobs=old,
        sampler_logprobs=sampler,
        ref_logprobs=None,
        entropy=entropy,
        ppo=ppo,
        loss=loss,
    )


def test_means_run_over_the_trained_tokens_of_all_microbatches() -> None:
    stats = PolicyStats()
    add(stats, [True, True, False], [1.0, 2.0, 99.0], [False, True, True], 0.5)
    add(stats, [False, False, True], [99.0, 99.0, 3.0], [True, True, False], 0.25)
    stats.steps.append((4.0, 0.1))
    out = stats.metrics()
    assert out["ratio"] == 2.0
    assert out["ratio_max"] == 3.0
    assert out["clip_fraction"] == pytest.approx(1 / 3)
    assert out["entropy"] == 1.0
    assert out["logprob_mismatch"] == out["logprob_mismatch_max"] == 0.5
    # k3 of d = sampler - now = -.5: exp(.5) - 1 - .5
    assert out["kl_to_behaviour"] == pytest.approx(math.exp(0.5) - 1.5)
    assert (out["trained_tokens"], out["loss"], out["grad_norm"], out["learning_rate"]) == (3.0, 0.75, 4.0, 0.1)


def test_loss_and_norm_are_means_over_the_steps_and_the_rate_is_the_last() -> None:
    stats = PolicyStats(loss=3.0, steps=[(1.0, 0.1), (3.0, 0.2)])
    out = stats.metrics()
    assert (out["loss"], out["grad_norm"], out["learning_rate"]) == (1.5, 2.0, 0.2)


def test_a_step_without_trained_tokens_counts_as_a_step_and_adds_nothing() -> None:
    stats = PolicyStats()
    add(stats, [False], [math.nan], [True], 0.0)
    stats.steps.append((0.0, 0.1))
    assert stats.metrics() == {"grad_norm": 0.0, "learning_rate": 0.1, "loss": 0.0, "trained_tokens": 0.0}


def test_no_step_has_no_numbers() -> None:
    out = PolicyStats().metrics()
    assert all(math.isnan(out[name]) for name in ("grad_norm", "learning_rate", "loss"))
