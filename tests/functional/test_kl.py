from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from atgrpo.functional.kl import kl_estimate, kl_loss

P = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
EVERYTHING = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize(("kind", "expected"), [("k1", -1.0), ("k2", 0.5), ("k3", 0.7182818)])
def test_signs_and_sizes_of_one_token(kind: Any, expected: float):
    # logprob -2, reference -1; k3 = e - 2
    got = kl_estimate(torch.tensor([-2.0]), torch.tensor([-1.0]), kind)
    assert got.item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_expectation_is_the_divergence(kind: Any):
    # .7 ln 1.4 + .2 ln(2/3) + .1 ln(1/2)
    assert (P * kl_estimate(P.log(), Q.log(), kind)).sum().item() == pytest.approx(0.0851228, abs=1e-6)


def policy_gradient_of(per_token: Any) -> Tensor:
    """Expected gradient over samples from P; samples are enumerated, so only their log-probs are differentiated."""
    logits = P.log().requires_grad_()
    (P * per_token(logits.log_softmax(0))).sum().backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.usefixtures("unchecked_annotations")
def test_k1_has_no_expected_gradient_and_is_refused_as_a_loss():
    assert policy_gradient_of(lambda logprobs: logprobs - Q.log()).abs().max() < 1e-12
    with pytest.raises(ValueError, match="got 'k1', expected k2 or k3"):
        kl_loss(P.log(), Q.log(), EVERYTHING, "k1")


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_expected_gradient_of_a_loss_is_that_of_a_true_divergence(kind: Any):
    got = policy_gradient_of(lambda logprobs: kl_loss(logprobs, Q.log(), EVERYTHING, kind))
    logits = P.log().requires_grad_()
    logprobs = logits.log_softmax(0)
    exact = (logprobs.exp() * (logprobs - Q.log())).sum() if kind == "k2" else (Q * (Q.log() - logprobs)).sum()
    exact.backward()
    torch.testing.assert_close(got, logits.grad)
    assert got.abs().max() > 0.01


def test_an_estimate_is_a_number_and_carries_no_gradient():
    assert not kl_estimate(P.log().requires_grad_(), Q.log(), "k3").requires_grad


def test_a_loss_never_moves_the_reference():
    reference = Q.log().requires_grad_()
    kl_loss(P.log().requires_grad_(), reference, EVERYTHING, "k3").sum().backward()
    assert reference.grad is None


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_masked_and_extreme_tokens_leave_gradients_finite(kind: Any):
    logprobs = torch.tensor([-1.0, -torch.inf, torch.nan, -500.0], requires_grad=True)
    reference = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    loss = kl_loss(logprobs, reference, torch.tensor([True, False, False, True]), kind)
    loss.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.isfinite().all()
    assert loss.isfinite().all()
    assert loss[1:3].tolist() == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.floats(-30, 0), st.floats(-30, 0), st.sampled_from(["k2", "k3"]))
def test_k2_and_k3_are_never_negative(logprob: float, reference: float, kind: Any):
    got = kl_estimate(torch.tensor(logprob).double(), torch.tensor(reference).double(), kind)
    assert got >= -1e-12


@pytest.mark.usefixtures("unchecked_annotations")
def test_misuse_is_refused():
    with pytest.raises(ValueError, match="kind: got 'k4'"):
        kl_estimate(P, Q, "k4")
    with pytest.raises(ValueError, match="shape of ref_logprobs"):
        kl_estimate(P, Q[:2], "k1")
    with pytest.raises(ValueError, match="shape of mask"):
        kl_loss(P, Q, EVERYTHING[:2], "k3")
