from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from atgrpo.training.schedule import Schedule, set_rates


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1.0] * 7),
        (Schedule(warmup=0.5), [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (Schedule(name="linear"), [1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0]),
        (Schedule(name="linear", warmup=0.5), [0.0, 0.5, 1.0, 0.5, 0.0, 0.0, 0.0]),
        # (1 + cos(pi * t / 4)) / 2
        (Schedule(name="cosine"), [1.0, 0.853553, 0.5, 0.146447, 0.0]),
    ],
    ids=lambda value: f"{value.name} {value.warmup}" if isinstance(value, Schedule) else "",
)
def test_a_schedule_over_four_steps_ends_with_them_and_does_not_swing(schedule: Schedule, expected: Any) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    built = schedule.build(optimizer, 4)
    rates = []
    for _ in expected:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        built.step()
    assert rates == pytest.approx(expected, abs=1e-6)


def test_a_saved_schedule_loaded_into_a_longer_one_gives_the_next_step_the_longer_ones_rate() -> None:
    def built(steps: int) -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        return optimizer, Schedule(name="linear").build(optimizer, steps)

    (short, ended), (long, longer) = built(2), built(4)
    for _ in range(2):
        short.step()
        ended.step()
    long.load_state_dict(short.state_dict())
    longer.load_state_dict(ended.state_dict())
    assert long.param_groups[0]["lr"] == 0.0
    set_rates(longer)
    assert long.param_groups[0]["lr"] == 0.5
