"""Statistics of few runs (arXiv:2108.13264): interquartile means, and intervals from resampled seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

RESAMPLED = 2000
Statistic = Callable[[np.ndarray], float]


def iqm(values: Sequence[float] | np.ndarray) -> float:
    """Mean of the middle half; a value that the quarter's border cuts counts with the share that is inside."""
    ordered = np.sort(np.asarray(values, dtype=float))
    count = len(ordered)
    inside = np.minimum(np.arange(1, count + 1), 0.75 * count) - np.maximum(np.arange(count), 0.25 * count)
    shares = inside.clip(0)
    return float((ordered * shares).sum() / shares.sum())


def interval(values: Sequence[float], statistic: Statistic = iqm, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap over seeds."""
    rows = np.asarray(values, dtype=float)
    draw = np.random.default_rng(0)
    found = [statistic(rows[draw.integers(len(rows), size=len(rows))]) for _ in range(RESAMPLED)]
    tail = 50 * (1 - level)
    low, high = np.percentile(found, [tail, 100 - tail])
    return float(low), float(high)


def improvement(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Probability that a run of ours is better than one of theirs, a tie counting half, and its 95% interval."""
    a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    draw = np.random.default_rng(0)
    found = []
    for _ in range(RESAMPLED):
        again = a[draw.integers(len(a), size=len(a))], b[draw.integers(len(b), size=len(b))]
        found.append(_better(*again))
    low, high = np.percentile(found, [2.5, 97.5])
    return _better(a, b), float(low), float(high)


def _better(a: np.ndarray, b: np.ndarray) -> float:
    difference = a[:, None] - b[None, :]
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())
