"""What the seed document says of group-relative weighting (its section 5), and what the runs say to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.marl.results import Arm, Run
from benchmarks.stats import FEWEST_SEEDS, LEVEL, Estimate, deviation_ratio, t_interval

OURS = "relative"


@dataclass(frozen=True, slots=True)
class Claim:
    """Group-relative weighting against a baseline, in one metric after some frames."""

    says: str
    task: str
    metric: str
    frames: int
    baseline: str
    sign: int = 1
    """-1 where less is better."""
    size: float | None = None
    """What is said to be gained; of the baseline's value where ``relative``."""
    relative: bool = False
    spread: bool = False
    """About the deviation over seeds instead of the mean."""


CLAIMS = (
    Claim("10% more coverage", "navigation", "coverage", 1_000_000, "mappo", size=0.10, relative=True),
    Claim("more coverage", "navigation", "coverage", 1_000_000, "dec_ppo"),
    Claim("fewer collisions", "navigation", "collisions", 1_000_000, "mappo", sign=-1),
    Claim("fewer collisions", "navigation", "collisions", 1_000_000, "dec_ppo", sign=-1),
    Claim("15% more reward early", "navigation", "return", 200_000, "mappo", size=0.15, relative=True),
    Claim("95% completion against 80-85%", "box_pushing", "completion", 1_000_000, "mappo", size=0.10),
    Claim("95% completion against 80-85%", "box_pushing", "completion", 1_000_000, "dec_ppo", size=0.10),
    Claim("a clear drop with w = 1", "navigation", "return", 1_000_000, "mappo"),
    Claim("a clear drop with w = 1", "box_pushing", "return", 1_000_000, "mappo"),
    Claim("less variance of returns", "box_pushing", "return", 1_000_000, "mappo", sign=-1, spread=True),
    Claim("less variance of returns", "box_pushing", "return", 1_000_000, "dec_ppo", sign=-1, spread=True),
)
"""What stands for each was chosen before the compared runs had ended; ``w = 1`` is MAPPO to the last bit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim, measured."""

    claim: Claim
    ours: float
    baseline: float
    change: Estimate
    """Mean difference, or ratio of deviations; its interval holds for all claims at once."""
    seeds: int

    @property
    def verdict(self) -> str:
        """What may be said."""
        if self.seeds < FEWEST_SEEDS:
            return "too few seeds"
        nothing, claim = (1.0 if self.claim.spread else 0.0), self.claim
        low, high = sorted(claim.sign * (end - nothing) for end in (self.change.low, self.change.high))
        size = None if claim.size is None else claim.size * (abs(self.baseline) if claim.relative else 1)
        excluded = size is not None and high < size
        if low > 0:
            return "holds, smaller than said" if excluded else "holds"
        if high < 0:
            return "the contrary holds"
        return "not shown; what is said is excluded" if excluded else "not shown"


def findings(runs: Mapping[Arm, Sequence[Run]]) -> list[Finding]:
    """Every claim whose two arms were run that far, on the seeds that both have."""
    known = [claim for claim in CLAIMS if len(_paired(claim, runs)) > 1]
    return [_finding(claim, runs, 1 - (1 - LEVEL) / len(known)) for claim in known]


def _paired(claim: Claim, runs: Mapping[Arm, Sequence[Run]]) -> list[tuple[float, float]]:
    ours, theirs = (
        {run.seed: run.at(claim.metric, claim.frames) for run in runs.get(arm, []) if max(run.curve) >= claim.frames}
        for arm in (Arm("atgrpo", claim.task, OURS), Arm("atgrpo", claim.task, claim.baseline))
    )
    return [(ours[seed], theirs[seed]) for seed in sorted(set(ours) & set(theirs))]


def _finding(claim: Claim, runs: Mapping[Arm, Sequence[Run]], level: float) -> Finding:
    pairs = np.array(_paired(claim, runs))
    x, y = pairs.T
    if claim.spread:
        values, change = (x.std(ddof=1), y.std(ddof=1)), deviation_ratio(x, y, level)
    else:
        values, change = (x.mean(), y.mean()), t_interval(x - y, level)
    return Finding(claim, float(values[0]), float(values[1]), change, len(pairs))
