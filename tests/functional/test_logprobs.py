from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from atgrpo.functional.logprobs import chunked_token_logprobs, token_logprobs

LOGITS = torch.tensor([[2.0, 1.0, 0.0]])


@pytest.mark.parametrize(("temperature", "expected"), [(0.5, -2.1429), (1.0, -1.4076), (2.0, -1.1803)])
def test_temperature_divides_logits_before_normalising(temperature: float, expected: float):
    # at .5: 2 - ln(e^4 + e^2 + 1)
    logprobs, _ = token_logprobs(LOGITS, torch.tensor([1]), temperature=temperature)
    assert logprobs.item() == pytest.approx(expected, abs=1e-4)


def test_entropy_is_that_of_the_tempered_distribution():
    uniform = token_logprobs(torch.zeros(1, 4), torch.tensor([0]), temperature=0.3)[1]
    assert uniform.item() == pytest.approx(1.3862944)
    probs = (LOGITS / 0.5).softmax(-1)
    got = token_logprobs(LOGITS, torch.tensor([0]), temperature=0.5)[1]
    torch.testing.assert_close(got, -(probs * probs.log()).sum(-1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_any_dtype_is_computed_in_float32(dtype: torch.dtype):
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)).mul(8).to(dtype)
    targets = torch.arange(5)
    logprobs, entropy = token_logprobs(logits, targets, temperature=0.7)
    assert logprobs.dtype == entropy.dtype == torch.float32
    expected = (logits.double() / 0.7).log_softmax(-1)[targets, targets]
    torch.testing.assert_close(logprobs, expected.float(), atol=2e-5, rtol=1e-5)


def test_a_deterministic_model_has_log_prob_zero_at_every_target():
    tokens = torch.tensor([0, 1, 2, 3, 4])
    logits = torch.nn.functional.one_hot(tokens[:-1] + 1, 6) * 200.0
    logprobs, entropy = token_logprobs(logits, tokens[1:], temperature=1.0)
    assert logprobs.tolist() == [0.0] * 4
    assert entropy.tolist() == [0.0] * 4


def test_excluded_vocabulary_costs_nothing_and_keeps_gradients_finite():
    logits = torch.tensor([[1.0, 0.0, -torch.inf, -400.0]], requires_grad=True)
    logprobs, entropy = token_logprobs(logits, torch.tensor([0]), temperature=1.0, entropy_grad=True)
    (logprobs + entropy).sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert entropy.item() == pytest.approx(0.5822, abs=1e-4)  # of the two-way choice .7311, .2689


def test_entropy_has_a_gradient_only_when_asked_for():
    logits, targets = LOGITS.clone().requires_grad_(), torch.tensor([1])
    assert not token_logprobs(logits, targets, temperature=1.0)[1].requires_grad
    token_logprobs(logits, targets, temperature=1.0, entropy_grad=True)[1].sum().backward()
    probs = LOGITS.softmax(-1)
    entropy = -(probs * probs.log()).sum()
    torch.testing.assert_close(logits.grad, -probs * (probs.log() + entropy))


def test_the_callers_logits_are_left_as_they_were():
    logits = LOGITS.clone()
    token_logprobs(logits, torch.tensor([1]), temperature=0.5)
    assert logits.equal(LOGITS)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_greedy_and_senseless_temperatures_are_refused(temperature: float):
    with pytest.raises(ValueError, match=r"temperature: got .*, expected a positive number"):
        token_logprobs(LOGITS, torch.tensor([1]), temperature=temperature)


def chunked_and_whole(positions: int, chunk: int, entropy_grad: bool) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(positions)
    hidden = torch.randn(positions, 4, generator=generator)
    targets = torch.randint(7, (positions,), generator=generator)
    head = torch.nn.Linear(4, 7)
    results = []
    for chunked in (True, False):
        states = hidden.clone().requires_grad_()
        head.zero_grad()
        if chunked:
            logprobs, entropy = chunked_token_logprobs(
                states, head, targets, temperature=0.8, chunk=chunk, entropy_grad=entropy_grad
            )
        else:
            logprobs, entropy = token_logprobs(head(states), targets, temperature=0.8, entropy_grad=entropy_grad)
        (logprobs.square().sum() + entropy.sum()).backward()
        assert states.grad is not None
        assert head.weight.grad is not None
        results.append([logprobs, entropy, states.grad, head.weight.grad.clone()])
    return results


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.integers(1, 12), st.booleans())
def test_any_chunking_gives_the_values_and_gradients_of_the_whole(positions: int, chunk: int, entropy_grad: bool):
    for chunked, whole in zip(*chunked_and_whole(positions, chunk, entropy_grad), strict=True):
        torch.testing.assert_close(chunked, whole, atol=1e-5, rtol=1e-5)


def test_no_chunks_logits_outlive_the_forward_pass():
    head, targets = torch.nn.Linear(4, 1000), torch.zeros(64, dtype=torch.long)
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    def largest_kept(compute: Callable[[Tensor], Any]) -> int:
        sizes.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            compute(torch.randn(64, 4, requires_grad=True))
        return max(sizes, default=0)

    assert largest_kept(lambda hidden: token_logprobs(head(hidden), targets, temperature=1.0)) == 64 * 1000
    assert largest_kept(lambda hidden: chunked_token_logprobs(hidden, head, targets, temperature=1.0, chunk=16)) < 1000


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("targets", "chunk", "message"),
    [(torch.zeros(2, dtype=torch.long), 2, "shape of targets"), (torch.zeros(3, dtype=torch.long), 0, "chunk: got 0")],
)
def test_misuse_is_refused(targets: Tensor, chunk: int, message: str):
    head: Any = torch.nn.Linear(4, 7)
    with pytest.raises(ValueError, match=message):
        chunked_token_logprobs(torch.zeros(3, 4), head, targets, temperature=1.0, chunk=chunk)
    with pytest.raises(ValueError, match=r"shape of targets: got \(1, 1\), expected \(1,\)"):
        token_logprobs(LOGITS, torch.tensor([[1]]), temperature=1.0)
