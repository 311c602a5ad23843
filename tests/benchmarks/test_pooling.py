"""Figures of the exact model and of the closed loop; all but the last test are sums, not samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from atgrpo.training.callbacks.grpo import GRPO
from atgrpo.training.callbacks.grpo_pooled import PooledGRPO
from atgrpo.types import Rollout
from benchmarks.pooling import Choice, closed_loop, drift, flip_ratio
from tests.rollout.helpers import make_rollout, make_turn


@pytest.mark.parametrize(
    ("direct", "ratio"), [(0.02, 1.31), (0.05, 1.27), (0.1, 1.21), (0.2, 1.12), (0.3, 1.06), (0.5, 1.0), (0.6, 0.98)]
)
def test_a_pooled_tool_must_be_this_many_times_better(direct: float, ratio: float) -> None:
    assert flip_ratio(Choice(direct=direct, tool=direct, samples=2)) == pytest.approx(ratio, abs=0.005)


def test_the_ratio_stays_below_the_root_of_the_samples() -> None:
    assert flip_ratio(Choice(direct=0.005, tool=0.0, samples=2)) < 2**0.5
    assert flip_ratio(Choice(direct=0.02, tool=0.0, samples=4)) < 2.0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("samples", "scaled"), [(1, True), (2, False), (4, False)])
def test_neither_one_vote_nor_unscaled_pooling_flips(rate: float, samples: int, scaled: bool) -> None:
    c = Choice(direct=0.2, tool=0.2, rate=rate, samples=samples, scaled=scaled)
    assert flip_ratio(c) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("success", "difference"), [(0.2, -0.053), (0.5, 0.0), (0.8, 0.053)])
def test_pooling_pushes_against_the_tool_below_one_half_and_for_it_above(success: float, difference: float) -> None:
    pooled, voted = (drift(Choice(direct=success, tool=success, samples=m)) for m in (2, 1))
    assert pooled - voted == pytest.approx(difference, abs=0.0005)


def trajectories(called: tuple[bool, ...], won: tuple[bool, ...]) -> Rollout:
    turns = [
        make_turn(credit=float(won[i]), branch=i, turn=turn)
        for i in range(len(called))
        for turn in range(2 if called[i] else 1)
    ]
    return make_rollout(*turns)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_model_is_what_the_projects_estimators_do(scaled: bool) -> None:
    """N=3, every outcome scored by the estimators themselves."""
    c = Choice(direct=0.3, tool=0.6, rate=0.4, trajectories=3, ddof=1, scaled=scaled)
    for samples, estimator in ((1, GRPO(scaled, eps=0.0)), (2, PooledGRPO(scaled, eps=0.0))):
        total = 0.0
        for called, won in product(product((False, True), repeat=3), repeat=2):
            (scored,) = estimator.on_rollout_end(None, None, [trajectories(called, won)])
            first = {t.key.branch: t.advantage or 0.0 for t in scored.turns if t.key.turn == 0}
            rates = [c.tool if call else c.direct for call in called]
            chance = np.prod([c.rate if call else 1 - c.rate for call in called])
            chance *= np.prod([p if hit else 1 - p for p, hit in zip(rates, won, strict=True)])
            total += chance * sum(first[i] * (called[i] - c.rate) for i in range(3))
        expected = total / (3 * c.rate * (1 - c.rate))
        assert drift(replace(c, samples=samples)) == pytest.approx(expected, abs=1e-9)


def test_the_closed_loop_drives_an_equally_good_tool_out_only_where_pooled_groups_are_scaled() -> None:
    ends = {
        name: closed_loop(Choice(direct=0.2, tool=0.2, samples=m, scaled=scaled), seeds=40, lr=lr)[:, -1].mean()
        for name, m, scaled, lr in (("grpo", 1, True, 0.5), ("pooled", 2, True, 0.5), ("unscaled", 2, False, 1.2))
    }
    assert ends == pytest.approx({"grpo": 0.52, "pooled": 0.19, "unscaled": 0.52}, abs=0.006)
