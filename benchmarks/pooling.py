"""What one group for turns of different prompts does to an agent that may call a tool (agent-lightning, issue 489).

python -m benchmarks.pooling --to benchmarks/figures/pooling.png

A trajectory that calls the tool makes m samples, one that answers at once makes 1. N trajectories of a prompt are a
group, success is 0 or 1. The exact model sums over all outcomes, the closed loop follows the tool's rate under plain
gradient steps. Nothing here is sampled from a language model; ``benchmarks.pooling_direction`` does that.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from math import comb, sqrt
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An agent that calls a tool or answers at once, and how its advantages are computed.

    Args:
        direct: Success of an answer at once.
        tool: Success of a call.
        rate: Share of calls.
        trajectories: N of a prompt.
        samples: m of a call where turns are pooled; 1 is one vote per trajectory, which is GRPO.
        scaled: Divide by the group's standard deviation.
        ddof: Of that; 0 as in the formulas, 1 as in ``atgrpo``.
    """

    direct: float
    tool: float
    rate: float = 0.5
    trajectories: int = 8
    samples: int = 1
    scaled: bool = True
    ddof: int = 0


def drift(c: Choice) -> float:
    r"""Expected slope of the tool's log-odds, in units of q (1 - q) a sample.

    With n calls of mean success R_T, d = N - n answers of mean success R_D and W = m n + d samples of standard
    deviation sigma, an outcome contributes ``(1 + (m - 1) q) n d (R_T - R_D) / (W sigma) / (N q (1 - q))``; one without
    variance, 0. Without the division by sigma pooling cannot flip the sign, which is that of R_T - R_D.
    """
    q, total = c.rate, 0.0
    for n in range(c.trajectories + 1):
        d = c.trajectories - n
        for won_t in range(n + 1):
            for won_d in range(d + 1):
                weight = c.samples * n + d
                mean = (c.samples * won_t + won_d) / weight
                if n == 0 or d == 0 or mean in (0.0, 1.0):
                    continue
                sigma = sqrt(mean * (1 - mean) * weight / (weight - c.ddof)) if c.scaled else 1.0
                chance = _binomial(c.trajectories, n, q) * _binomial(n, won_t, c.tool) * _binomial(d, won_d, c.direct)
                total += chance * n * d * (won_t / n - won_d / d) / (weight * sigma)
    return (1 + (c.samples - 1) * q) * total / (c.trajectories * q * (1 - q))


def _binomial(n: int, k: int, p: float) -> float:
    return comb(n, k) * p**k * (1 - p) ** (n - k)


def flip_ratio(c: Choice) -> float:
    """How many times better than an answer the tool must be before it is called more often; ``c.tool`` is not used."""
    highest = min(0.999, 3 * c.direct)
    return float(brentq(lambda tool: drift(replace(c, tool=tool)), 0.2 * c.direct, highest)) / c.direct


def closed_loop(
    c: Choice, *, seeds: int, iterations: int = 300, lr: float = 0.5, questions: int = 16
) -> Float[Array, "seeds iterations"]:
    """The tool's rate before each of the iterations of plain gradient ascent from ``c.rate``, both successes pinned."""
    streams = [np.random.default_rng(seed) for seed in range(seeds)]
    logit = np.full(seeds, np.log(c.rate / (1 - c.rate)))
    rates = np.empty((seeds, iterations))
    for step in range(iterations):
        q = 1 / (1 + np.exp(-logit))
        rates[:, step] = q
        draws = np.stack([stream.random((3, questions, c.trajectories)) for stream in streams], axis=1)
        called = draws[0] < q[:, None, None]
        won = np.where(called, draws[1] < c.tool, draws[2] < c.direct).astype(float)
        advantages = _advantages(won, np.where(called, float(c.samples), 1.0), c)
        logit += lr * (advantages * (called - q[:, None, None])).mean((1, 2))
    return rates


def _advantages(won: Array, votes: Array, c: Choice) -> Array:
    """Of every trajectory against its group, whose moments count it as often as it votes."""
    weight = votes.sum(-1, keepdims=True)
    mean = (votes * won).sum(-1, keepdims=True) / weight
    variance = mean * (1 - mean) * weight / (weight - c.ddof)
    scale = np.sqrt(variance) if c.scaled else np.ones_like(variance)
    return np.where(variance > 1e-12, (won - mean) / np.where(variance > 1e-12, scale, 1.0), 0.0)


WAYS = {
    "grpo": (1, True, 0.5),
    "pooled": (2, True, 0.5),
    "pooled without std": (2, False, 1.2),
}
"""Name -> (samples of a call, scaled, learning rate). Unscaled advantages are about .4 of the scaled ones."""


def _print_exact() -> None:
    print("tool / direct success above which pooled groups of N=8 call the tool more often (m=2, q=.5)")
    print("| direct | pooled, ddof 0 | pooled, ddof 1 | pooled without std | one vote |\n|---|---|---|---|---|")
    for p in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.6):
        base = Choice(direct=p, tool=p, samples=2)
        ways = (base, replace(base, ddof=1), replace(base, scaled=False), replace(base, samples=1))
        print(f"| {p} | " + " | ".join(f"{flip_ratio(way):.3f}" for way in ways) + " |")
    print("\npooled minus one vote, slope of the tool's log-odds where tool and answer are equally good")
    for p in (0.2, 0.5, 0.8):
        both = [drift(Choice(direct=p, tool=p, samples=m)) for m in (2, 1)]
        print(f"success {p}: {both[0] - both[1]:+.3f}")


def _plot(seeds: int, to: Path | None) -> None:
    """Prints where the closed loop ends and, if asked, draws how it gets there."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases = ((0.2, 0.2), (0.2, 0.3), (0.8, 0.8))
    figure, axes = plt.subplots(1, len(cases), figsize=(13, 3.6), sharey=True, layout="constrained")
    print(f"\nrate of calls after 300 steps, mean over {seeds} seeds and its standard error")
    for axis, (direct, tool) in zip(axes, cases, strict=True):
        for name, (samples, scaled, lr) in WAYS.items():
            c = Choice(direct=direct, tool=tool, samples=samples, scaled=scaled)
            rates = closed_loop(c, seeds=seeds, lr=lr)
            mean, error = rates.mean(0), rates.std(0, ddof=1) / sqrt(seeds)
            print(f"direct {direct}, tool {tool}, {name}: {mean[-1]:.3f} +- {error[-1]:.3f}")
            axis.plot(mean, label=name)
            axis.fill_between(range(len(mean)), mean - 1.96 * error, mean + 1.96 * error, alpha=0.2)
        axis.set(title=f"answer {direct}, tool {tool}", xlabel="step", ylim=(0, 1))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("rate of tool calls")
    axes[0].legend(fontsize=8)
    if to is not None:
        figure.savefig(to, dpi=110, metadata={"Software": None})


def main() -> None:
    """Reads the arguments, prints the tables."""
    parser = argparse.ArgumentParser(description="What pooled groups do to a tool's rate.")
    parser.add_argument("--seeds", type=int, default=40, help="of the closed loop (default 40)")
    parser.add_argument("--to", type=Path, help="a figure to write")
    arguments = parser.parse_args()
    _print_exact()
    _plot(arguments.seeds, arguments.to)


if __name__ == "__main__":
    main()
