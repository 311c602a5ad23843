from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from atgrpo.functional.losses import PPOLoss, aggregate, mismatch_weights, ppo_clip_loss
from atgrpo.functional.masked import aggregation_weights

CLIP = {"eps_low": 0.2, "eps_high": 0.3}


def row(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float32)


def everything(like: Tensor) -> Tensor:
    return torch.ones_like(like, dtype=torch.bool)


def loss_at(ratio: float, advantage: float, **options: Any) -> tuple[PPOLoss, float]:
    """The loss of one token and its gradient with respect to the log-prob."""
    logprobs = row(math.log(ratio) - 1).requires_grad_()
    result = ppo_clip_loss(logprobs, row(-1.0), row(advantage), everything(logprobs), **(CLIP | options))
    result.loss.sum().backward()
    assert logprobs.grad is not None
    return result, logprobs.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.25, 2.0, -2.5, False),  # inside the wider upper bound
        (2.0, 2.0, -2.6, True),
        (0.5, 2.0, -1.0, False),  # a good token that became rarer is pulled back, however far
        (0.5, -2.0, 1.6, True),
        (0.85, -2.0, 1.7, False),
        (2.0, -2.0, 4.0, False),
        (2.0, 0.0, 0.0, False),
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, loss: float, clipped: bool):
    result, gradient = loss_at(ratio, advantage)
    assert result.loss.item() == pytest.approx(loss)
    assert result.ratio.item() == pytest.approx(ratio)
    assert result.clipped.item() is clipped
    assert gradient == pytest.approx(0.0 if clipped else -ratio * advantage)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [(5.0, -2.0, 6.0, True), (2.0, -2.0, 4.0, False), (5.0, 2.0, -2.6, True), (0.5, -2.0, 1.6, True)],
)
def test_dual_clip_bounds_the_loss_of_bad_tokens_only(ratio: float, advantage: float, loss: float, clipped: bool):
    result, gradient = loss_at(ratio, advantage, dual_clip=3.0)
    assert result.loss.item() == pytest.approx(loss)
    assert result.clipped.item() is clipped
    assert gradient == pytest.approx(0.0 if clipped else -ratio * advantage)


def test_before_any_update_the_ratio_is_one_and_the_gradient_is_reinforce():
    logprobs = row(-1.0, -2.0).requires_grad_()
    result = ppo_clip_loss(logprobs, logprobs, row(0.5, -3.0), everything(logprobs), **CLIP)
    result.loss.sum().backward()
    assert result.ratio.tolist() == [[1.0, 1.0]]
    assert not result.ratio.requires_grad
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[-0.5, 3.0]]


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("filler", [0.0, 1e4, torch.inf, -torch.inf, torch.nan])
def test_masked_tokens_may_hold_anything(filler: float, level: Any):
    logprobs = row(filler, -1.0, filler).requires_grad_()
    mask, branches = torch.tensor([[False, True, False]]), torch.tensor([[0, 1, -1]])
    result = ppo_clip_loss(
        logprobs, row(0.0, -1.0, 0.0), row(filler, 2.0, filler), mask, ratio_level=level, branch_ids=branches, **CLIP
    )
    result.loss.sum().backward()
    assert result.loss.tolist() == [[0.0, -2.0, 0.0]]
    assert result.ratio.tolist() == [[1.0, 1.0, 1.0]]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0, -2.0, 0.0]]


@pytest.mark.parametrize("advantage", [2.0, -2.0, 0.0])
@pytest.mark.parametrize("logprob", [-1e4, -torch.inf, 0.0])
def test_runaway_ratios_leave_loss_and_gradient_finite(logprob: float, advantage: float):
    logprobs = row(logprob).requires_grad_()
    result = ppo_clip_loss(logprobs, row(-1000.0), row(advantage), everything(logprobs), dual_clip=3.0, **CLIP)
    result.loss.sum().backward()
    assert result.loss.isfinite().all()
    assert logprobs.grad is not None
    assert logprobs.grad.isfinite().all()


def test_a_fully_masked_micro_batch_has_loss_zero_and_zero_gradients():
    logprobs = torch.zeros(2, 3, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    result = ppo_clip_loss(logprobs, torch.zeros(2, 3), torch.full((2, 3), torch.nan), nothing, **CLIP)
    for denominator in (10.0, 0.0):
        logprobs.grad = None
        loss = aggregate(result.loss, torch.zeros(2, 3), nothing, denominator)
        loss.backward(retain_graph=True)
        assert loss == 0
        assert logprobs.grad is not None
        assert logprobs.grad.tolist() == [[0.0] * 3] * 2


def test_sequence_ratio_is_the_geometric_mean_over_a_branch_of_its_own_row():
    # Two packed rows: prompt, branches 1 and 2, padding. Log-ratios .1 and .3 average to .2, and so on.
    branches = torch.tensor([[0, 1, 1, 2, -1], [0, 0, 1, 2, 2]])
    mask = branches > 0
    log_ratio = torch.tensor([[9.0, 0.1, 0.3, -0.4, 9.0], [9.0, 9.0, 0.05, 0.0, 0.2]])
    result = ppo_clip_loss(
        log_ratio, torch.zeros(2, 5), torch.ones(2, 5), mask, ratio_level="sequence", branch_ids=branches, **CLIP
    )
    mean_log_ratio = torch.tensor([[0.0, 0.2, 0.2, -0.4, 0.0], [0.0, 0.0, 0.05, 0.1, 0.1]])
    torch.testing.assert_close(result.ratio, mean_log_ratio.exp())


def test_sequence_ratio_ignores_untrained_tokens_of_its_branch():
    branches, mask = torch.tensor([[1, 1, 1]]), torch.tensor([[True, False, True]])
    result = ppo_clip_loss(
        row(0.1, 5.0, 0.2), row(0, 0, 0), row(1, 1, 1), mask, ratio_level="sequence", branch_ids=branches, **CLIP
    )
    torch.testing.assert_close(result.ratio, row(0.15, 0.0, 0.15).exp())


def test_sequence_level_gradient_is_that_of_the_sequence_objective():
    logprobs = row(-1.0, -2.0, -0.5).requires_grad_()
    old, branches = row(-1.1, -1.9, -0.7), torch.ones(1, 3, dtype=torch.long)
    mask = everything(old)
    result = ppo_clip_loss(logprobs, old, row(2, 2, 2), mask, ratio_level="sequence", branch_ids=branches, **CLIP)
    loss = aggregate(result.loss, torch.full((1, 3), 1 / 3), mask, 1.0)
    loss.backward()
    # s = exp((.1 - .1 + .2) / 3); loss -2 s, gradient -2 s / 3 for each token
    ratio = math.exp(0.2 / 3)
    assert loss.item() == pytest.approx(-2 * ratio)
    torch.testing.assert_close(logprobs.grad, torch.full((1, 3), -2 * ratio / 3))


def test_one_token_sequences_have_the_same_ratio_at_either_level():
    logprobs, branches = row(-1.0, -2.0, -0.1), torch.tensor([[1, 2, 3]])
    old, advantages, mask = row(-1.3, -1.0, -0.1), row(1.0, -1.0, 2.0), everything(logprobs)
    token = ppo_clip_loss(logprobs, old, advantages, mask, **CLIP)
    sequence = ppo_clip_loss(logprobs, old, advantages, mask, ratio_level="sequence", branch_ids=branches, **CLIP)
    torch.testing.assert_close(sequence.loss, token.loss)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("none", [1.0, 1.0, 1.0, 0.0]), ("truncate", [0.5, 2.0, 2.0, 0.0]), ("mask", [0.5, 2.0, 0.0, 0.0])],
)
def test_mismatch_weights_by_hand(mode: Any, expected: list[float]):
    old = row(-1.0, -1.0, -1.0, torch.nan).requires_grad_()
    sampler = -1 - row(0.5, 2.0, 8.0, 1.0).log()  # the trainer finds the tokens .5, 2 and 8 times as likely
    mask = torch.tensor([[True, True, True, False]])
    got = mismatch_weights(old, sampler, mask, mode=mode, cap=2.0 + 1e-6)
    torch.testing.assert_close(got, row(*expected), atol=1e-5, rtol=0)
    assert not got.requires_grad


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_a_missing_sampler_log_prob_never_passes_as_a_weight(mode: Any):
    got = mismatch_weights(row(-1.0), row(torch.nan), torch.tensor([[True]]), mode=mode, cap=2.0)
    assert got.isnan().all()


def loss_over_lengths(lengths: list[int], values: list[float], mode: Any, constant_length: int | None = None) -> float:
    weights, denominators = aggregation_weights(torch.tensor(lengths), mode, constant_length=constant_length)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    per_token = torch.tensor(values).unsqueeze(1).expand(mask.shape)
    return aggregate(per_token, weights.unsqueeze(1).expand(mask.shape), mask, float(denominators.sum())).item()


@pytest.mark.parametrize(
    ("mode", "constant_length", "expected"),
    [("token_mean", None, 2.6), ("sequence_mean", None, 2.0), ("constant", 13, 1.0)],
)
def test_the_name_of_the_mode_says_what_the_loss_is_a_mean_of(mode: Any, constant_length: int | None, expected: float):
    # 2 tokens at 1 and 8 at 3: 26 / 10, (1 + 3) / 2, 26 / (2 * 13)
    assert loss_over_lengths([2, 8], [1.0, 3.0], mode, constant_length) == pytest.approx(expected)


def test_a_long_trajectory_weighs_as_much_as_a_short_one_in_the_sequence_mean():
    assert loss_over_lengths([1, 9], [1.0, 0.0], "sequence_mean") == pytest.approx(0.5)
    assert loss_over_lengths([1, 9], [1.0, 0.0], "token_mean") == pytest.approx(0.1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=6))
def test_any_split_into_micro_batches_adds_up_to_the_whole(cuts: list[int]):
    # 100 tokens at 2.0 and 900 at .5 make .65, however they are cut.
    per_token = torch.tensor([2.0] * 100 + [0.5] * 900)
    bounds = [0, *sorted(cuts), 1000]
    shares = []
    for start, stop in pairwise(bounds):
        part = per_token[start:stop].unsqueeze(0)
        shares.append(aggregate(part, torch.ones_like(part), everything(part), 1000.0).item())
    assert sum(shares) == pytest.approx(0.65, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["token_mean", "sequence_mean", "constant"]),
    st.sampled_from(["token", "sequence"]),
    st.integers(1, 5),
    st.integers(0, 1000),
)
def test_packed_rows_split_into_micro_batches_have_the_gradient_of_the_whole(
    mode: Any, level: Any, rows: int, seed: int
):
    generator = torch.Generator().manual_seed(seed)
    branches = torch.tensor([[0, 0, 1, 1, 1, 2, -1], [0, 1, 2, 2, 3, 3, 3], [0, 0, 0, 1, -1, -1, -1]])
    branches = branches[torch.randint(3, (rows,), generator=generator)]
    mask = branches > 0
    lengths = torch.stack([(branches == branch).sum(1) for branch in (1, 2, 3)], dim=1)
    weights, denominators = aggregation_weights(
        lengths.flatten(), mode, constant_length=9 if mode == "constant" else None
    )
    weights = weights.view(rows, 3).gather(1, (branches - 1).clamp(min=0))
    scale, old, advantages = (torch.randn(rows, 7, generator=generator) for _ in range(3))
    losses, gradients = [], []
    for size in (1, rows):
        parameter = torch.tensor(0.3, requires_grad=True)
        total = torch.zeros(())
        for chosen in torch.arange(rows).split(size):
            result = ppo_clip_loss(
                parameter * scale[chosen],
                old[chosen],
                advantages[chosen],
                mask[chosen],
                ratio_level=level,
                branch_ids=branches[chosen],
                **CLIP,
            )
            share = aggregate(result.loss, weights[chosen], mask[chosen], float(denominators.sum()))
            share.backward()
            total += share.detach()
        losses.append(total)
        gradients.append(parameter.grad)
    torch.testing.assert_close(losses[0], losses[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"old_logprobs": torch.zeros(1, 3)}, r"shape of old_logprobs: got \(1, 3\), expected \(1, 2\)"),
        ({"advantages": torch.zeros(2)}, "shape of advantages"),
        ({"mask": torch.ones(1, 2)}, "expected torch\\.bool"),
        ({"eps_low": 1.5}, "eps_low: got 1.5"),
        ({"eps_high": -0.1}, "eps_high: got -0.1"),
        ({"dual_clip": 1.0}, "dual_clip: got 1.0"),
        ({"ratio_level": "branch"}, "ratio_level: got 'branch'"),
        ({"ratio_level": "sequence"}, "branch_ids: got none"),
        ({"ratio_level": "sequence", "branch_ids": torch.tensor([[0, 1]])}, "outside every branch"),
    ],
)
def test_unfit_losses_are_refused(change: dict[str, Any], message: str):
    names = ("logprobs", "old_logprobs", "advantages")
    fitting = dict.fromkeys(names, torch.zeros(1, 2)) | {"mask": torch.ones(1, 2, dtype=torch.bool)} | CLIP
    with pytest.raises(ValueError, match=message):
        ppo_clip_loss(**(fitting | change))


@pytest.mark.parametrize("denominator", [0.0, -1.0, math.nan])
def test_an_unfit_denominator_is_refused(denominator: float):
    with pytest.raises(ValueError, match="denominator: got"):
        aggregate(torch.ones(1, 1), torch.ones(1, 1), torch.tensor([[True]]), denominator)


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(("mode", "cap"), [("truncate", 0.5), ("clip", 2.0), ("truncate", math.nan)])
def test_unfit_mismatch_settings_are_refused(mode: Any, cap: float):
    with pytest.raises(ValueError, match=r"(mode|cap): got"):
        mismatch_weights(row(0.0), row(0.0), torch.tensor([[True]]), mode=mode, cap=cap)
