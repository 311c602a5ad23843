from __future__ import annotations

import math

from atgrpo.rollout.samplers import mean


def test_a_mean_skips_what_is_missing() -> None:
    assert mean([1.0, None, 2.0]) == 1.5
    assert math.isnan(mean([None, None]))
    assert math.isnan(mean([]))
