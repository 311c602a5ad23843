"""Statistics over seeds: interquartile means, bootstrap intervals, probability of improvement, claims (scipy).

The measures are those of Agarwal et al., 2021, "Deep reinforcement learning at the edge of the statistical precipice".
Their library, rliable 1.2.0, cannot be seeded with the versions of arch that install beside numpy 2, and a report must
come out the same every time; scipy has the same parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 5000
LEVEL = 0.95
FEWEST_SEEDS = 5
"""For a claim."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Contrast:
    """One arm against another on the same seeds."""

    difference: Estimate
    """Interquartile mean of the differences seed by seed, bootstrapped."""
    improvement: Estimate
    """Probability that a run of the first is better than one of the second; ties are half."""
    simultaneous: Estimate
    """Mean difference with an interval that holds for all contrasts of a report at once (Student's t, Bonferroni)."""
    seeds: int

    @property
    def claim(self) -> str:
        """What may be said. Few seeds make a bootstrap too sure of itself, so it is the wider interval that decides."""
        if self.simultaneous.low > 0:
            return "better"
        return "worse" if self.simultaneous.high < 0 else "no claim"


def iqm(values: Any, axis: int | None = None) -> Any:
    """Mean of the middle half: a quarter is cut off at both ends, rounded down to whole values."""
    return stats.trim_mean(values, 0.25, axis=axis)


def iqm_interval(by_task: Sequence[Any]) -> Estimate:
    """Interquartile mean of all runs; seeds are drawn anew within each task (stratified bootstrap, percentiles)."""
    return _bootstrap(by_task, lambda *tasks, axis: iqm(np.concatenate(tasks, axis), axis))


def probability_of_improvement(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """P(X > Y) + P(X = Y) / 2: Mann and Whitney's U over the number of pairs."""
    return _bootstrap([x, y], _improved)


def _improved(x: Any, y: Any, axis: int) -> Any:
    difference = x[..., :, None] - y[..., None, :]
    return (difference > 0).mean((-2, -1)) + (difference == 0).mean((-2, -1)) / 2


def contrast(first: Mapping[Any, float], second: Mapping[Any, float], contrasts: int) -> Contrast | None:
    """Of the runs that both have, by what they share (a seed); nothing for fewer than two.

    Args:
        first: What a run shares with one of the second -> its score.
        second: The same.
        contrasts: How many are made in the same report.
    """
    seeds = sorted(set(first) & set(second))
    if len(seeds) < 2:
        return None
    x, y = [first[s] for s in seeds], [second[s] for s in seeds]
    differences = np.subtract(x, y)
    return Contrast(
        difference=iqm_interval([differences]),
        improvement=probability_of_improvement(x, y),
        simultaneous=t_interval(differences, 1 - (1 - LEVEL) / contrasts),
        seeds=len(seeds),
    )


def t_interval(values: Any, level: float) -> Estimate:
    """Student's interval of a mean; equal values have a width of 0."""
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1)) * error
    return Estimate(mean, mean - half, mean + half)


def deviation_ratio(x: Sequence[float], y: Sequence[float], level: float) -> Estimate:
    """Standard deviation of ``x`` over that of ``y``, with Fisher's interval (normal values, drawn apart).

    Raises:
        ValueError: fewer than two values on a side.
    """
    if min(len(x), len(y)) < 2:
        raise ValueError(f"deviations got {len(x)} and {len(y)} values, expected two or more of each")
    ratio = float(np.std(x, ddof=1) / np.std(y, ddof=1))
    low, high = stats.f.ppf([(1 - level) / 2, (1 + level) / 2], len(x) - 1, len(y) - 1)
    return Estimate(ratio, ratio / math.sqrt(high), ratio / math.sqrt(low))


def _bootstrap(samples: Sequence[Any], statistic: Callable[..., Any]) -> Estimate:
    """Percentile interval; every sample is resampled by itself, always with the same draws."""
    data = [np.asarray(sample, dtype=float) for sample in samples]
    value = float(statistic(*data, axis=-1))
    if min(map(len, data)) < 2:
        return Estimate(value, math.nan, math.nan)
    found = stats.bootstrap(
        data,
        statistic,
        n_resamples=RESAMPLES,
        vectorized=True,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    low, high = found.confidence_interval
    return Estimate(value, float(low), float(high))
