from __future__ import annotations

from typing import Any

import pytest
import torch

from atgrpo.functional.values import clipped_value_loss


def loss_at(value: float, old: float, target: float, clip: float | None = 0.5, huber: float | None = None) -> Any:
    """(loss, its gradient)."""
    values = torch.tensor([value], requires_grad=True)
    loss = clipped_value_loss(values, torch.tensor([old]), torch.tensor([target]), clip=clip, huber=huber)
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    return loss.item(), gradient.item()


def test_half_the_square_within_the_clip():
    assert loss_at(1.25, 1.0, 3.25) == (2.0, -2.0)


def test_a_value_that_has_gone_far_enough_towards_its_target_rests():
    # 2 is clipped to 1.5: half of (1.5 - 3)^2 is the larger one and constant
    assert loss_at(2.0, 1.0, 3.0) == (1.125, 0.0)


def test_a_value_that_has_gone_away_from_its_target_is_pulled_back():
    assert loss_at(0.0, 1.0, 3.0) == (4.5, -3.0)


def test_without_a_clip_there_is_no_rest():
    assert loss_at(2.0, 1.0, 3.0, clip=None) == (0.5, -1.0)


def test_huber_is_linear_beyond_its_bound():
    # 2 * (|4| - 2/2)
    assert loss_at(0.0, 0.0, 4.0, huber=2.0) == (6.0, -2.0)
    assert loss_at(0.0, 0.0, 1.0, huber=2.0) == (0.5, -1.0)


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": torch.zeros(3)}, "shape of targets"),
        ({"clip": 0.0}, "clip: got 0.0"),
        ({"huber": -1.0}, "huber: got -1.0"),
    ],
)
def test_misuse_is_refused(change: dict[str, Any], message: str):
    fitting = {"values": torch.zeros(2), "old_values": torch.zeros(2), "targets": torch.zeros(2)}
    with pytest.raises(ValueError, match=message):
        clipped_value_loss(**(fitting | {"clip": 0.2, "huber": 10.0} | change))
