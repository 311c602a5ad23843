from __future__ import annotations

from typing import Any

import pytest
import torch

from atgrpo.functional.masked import aggregation_weights, masked_mean, masked_sum


def test_masked_tokens_are_not_in_the_denominator():
    values, mask = torch.ones(2, 4), torch.tensor([[True] * 4, [False] * 4])
    assert masked_mean(values, mask) == 1.0
    assert masked_sum(values, mask) == 4.0


@pytest.mark.parametrize("reduce", [masked_sum, masked_mean])
@pytest.mark.parametrize("filler", [0.0, torch.nan, torch.inf, -torch.inf])
def test_a_fully_masked_batch_gives_zero_with_zero_gradients(reduce: Any, filler: float):
    values = torch.full((2, 3), filler, requires_grad=True)
    result = reduce(values, torch.zeros(2, 3, dtype=torch.bool))
    result.backward()
    assert result == 0
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0] * 3] * 2


def test_what_is_masked_reaches_neither_value_nor_gradient():
    values = torch.tensor([2.0, torch.nan, 4.0, torch.inf], requires_grad=True)
    result = masked_mean(values, torch.tensor([True, False, True, False]))
    result.backward()
    assert result == 3.0
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.0, 0.5, 0.0]


@pytest.mark.usefixtures("unchecked_annotations")
def test_masks_must_be_boolean_and_fit():
    with pytest.raises(ValueError, match=r"got torch\.float32, expected torch\.bool"):
        masked_sum(torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match=r"shape of mask: got \(1, 2\), expected \(2, 2\) as for values"):
        masked_mean(torch.ones(2, 2), torch.ones(1, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("mode", "constant_length", "weights", "denominators"),
    [
        ("token_mean", None, [1.0, 1.0, 0.0], [2, 8, 0]),
        ("sequence_mean", None, [0.5, 0.125, 0.0], [1, 1, 0]),
        ("trajectory_mean", None, [0.5, 0.125, 0.0], [1, 1, 0]),
        ("constant", 16, [1.0, 1.0, 0.0], [16, 16, 0]),
    ],
)
def test_weights_by_hand(mode: Any, constant_length: int | None, weights: list[float], denominators: list[int]):
    got = aggregation_weights(torch.tensor([2, 8, 0]), mode, constant_length=constant_length)
    assert got[0].dtype == torch.float32
    assert [part.tolist() for part in got] == [weights, denominators]


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("lengths", "mode", "constant_length", "message"),
    [
        ([1, -1], "token_mean", None, "lengths: got"),
        ([1.0], "token_mean", None, "lengths: got"),
        ([1], "mean", None, "mode: got 'mean'"),
        ([1], "constant", None, "constant_length: got None"),
        ([1], "constant", 0, "constant_length: got 0"),
        ([1], "token_mean", 5, "with mode 'token_mean', expected None"),
    ],
)
def test_unfit_weights_are_refused(lengths: list[int], mode: Any, constant_length: int | None, message: str):
    with pytest.raises(ValueError, match=message):
        aggregation_weights(torch.tensor(lengths), mode, constant_length=constant_length)
