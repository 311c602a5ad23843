from __future__ import annotations

import math

import pytest

from benchmarks.stats import contrast, deviation_ratio, iqm, iqm_interval, probability_of_improvement, t_interval


def test_the_middle_half_by_hand() -> None:
    assert iqm([0.0, 1.0, 2.0, 3.0, 100.0]) == pytest.approx(2)
    assert iqm([5.0, 0.0, 1.0, 2.0]) == pytest.approx(1.5)
    assert iqm([1.0, 3.0]) == pytest.approx(2)


def test_ties_are_half_an_improvement() -> None:
    assert probability_of_improvement([1.0, 2.0], [0.0, 1.0]).value == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert probability_of_improvement([0.5] * 3, [0.5] * 3).value == pytest.approx(0.5)


def test_intervals_are_the_same_every_time_and_hold_the_value() -> None:
    values = [[0.1, 0.5, 0.4, 0.9, 0.3]]
    assert iqm_interval(values) == iqm_interval(values)
    found = iqm_interval(values)
    assert 0.1 <= found.low < found.value < found.high <= 0.9


def test_tasks_are_resampled_each_by_itself() -> None:
    """Two tasks without spread of their own: nothing is uncertain, however far apart they are."""
    found = iqm_interval([[0.1] * 4, [0.9] * 4])
    assert (found.low, found.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_one_run_has_no_interval() -> None:
    found = iqm_interval([[0.3]])
    assert found.value == 0.3
    assert math.isnan(found.low)
    assert str(found) == "0.300"


def test_students_interval_by_hand() -> None:
    """Mean 2, standard error 1 / sqrt(3), t of two degrees 4.303."""
    found = t_interval([1.0, 2.0, 3.0], 0.95)
    assert (found.low, found.high) == (pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-3), pytest.approx(4.484, abs=1e-3))


FIRST = dict(enumerate([0.80, 0.82, 0.79, 0.81, 0.83]))
SECOND = dict(enumerate([0.70, 0.71, 0.70, 0.72, 0.71]))


def test_a_clear_difference_is_claimed_both_ways() -> None:
    found, turned = contrast(FIRST, SECOND, 1), contrast(SECOND, FIRST, 1)
    assert found is not None
    assert turned is not None
    assert (found.claim, turned.claim) == ("better", "worse")
    assert found.improvement.value == 1


def test_a_bootstrap_that_leaves_out_zero_is_no_claim_yet() -> None:
    first = dict(enumerate([0.80, 0.71, 0.74, 0.73, 0.72]))
    found = contrast(first, SECOND, 1)
    assert found is not None
    assert found.difference.low > 0
    assert found.claim == "no claim"


def test_more_contrasts_make_a_claim_harder() -> None:
    first = {seed: value + 0.1 * (seed % 2) + 0.02 for seed, value in SECOND.items()}
    widths = []
    for number in (1, 20):
        found = contrast(first, SECOND, number)
        assert found is not None
        widths.append(found.simultaneous.high - found.simultaneous.low)
    assert widths[1] > widths[0]


def test_only_seeds_that_both_have_are_compared() -> None:
    found = contrast({0: 1.0, 1: 1.0, 7: 0.0}, {0: 0.0, 1: 0.5, 8: 9.0}, 1)
    assert found is not None
    assert (found.seeds, found.difference.value) == (2, pytest.approx(0.75))
    assert contrast({0: 1.0}, {0: 0.0}, 1) is None


def test_the_ratio_of_deviations_by_hand() -> None:
    """Deviations 2 and 1; for two and two degrees of freedom F's quantiles at 2.5 and 97.5% are 1/39 and 39."""
    found = deviation_ratio([0.0, 2.0, 4.0], [5.0, 6.0, 7.0], 0.95)
    assert found.value == pytest.approx(2)
    assert (found.low, found.high) == (pytest.approx(2 / 39**0.5), pytest.approx(2 * 39**0.5))
    with pytest.raises(ValueError, match="two or more"):
        deviation_ratio([1.0], [1.0, 2.0], 0.95)
