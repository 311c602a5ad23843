"""How good the team is on held-out samples: one response per step, nothing selected by reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.samplers import SamplerSettings, mean
from atgrpo.training.team import Team
from atgrpo.types import Rollout, Sample

Mode = Literal["greedy", "sampled"]


@dataclass(frozen=True, slots=True)
class Score:
    """Held-out success of one way of playing."""

    mode: Mode
    success: float
    low: float
    """Lower end of the 95% bootstrap interval over problems."""
    high: float
    success_by_turn: tuple[float, ...]
    """Success had the team stopped after turn t, over the problems that could be judged then; NaN if none could."""
    problems: int

    def __str__(self) -> str:
        """One line for people."""
        turns = ", ".join("?" if math.isnan(s) else f"{s:.1%}" for s in self.success_by_turn)
        by_turn = f"; after each turn {turns}" if len(self.success_by_turn) > 1 else ""
        return (
            f"held-out success ({self.mode}, {self.problems} problems): {self.success:.1%} "
            f"[{self.low:.1%}, {self.high:.1%}]{by_turn}"
        )


def evaluation_sampler(training: SamplerSettings, mode: Mode) -> ParallelSampler:
    """One trajectory per problem with the training's turns, order and lengths; greedy at temperature 0."""
    temperature = 0.0 if mode == "greedy" else training.temperature
    if isinstance(training, ParallelSampler):
        return replace(training, trajectories=1, temperature=temperature)
    return ParallelSampler(
        turns=training.turns,
        order=training.order,
        alpha=training.alpha,
        max_tokens=training.max_tokens,
        temperature=temperature,
        trajectories=1,
    )


def bootstrap_interval(values: Sequence[float], *, resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95% percentile interval of the mean over resampled problems (Efron, 1979)."""
    data = torch.tensor(values, dtype=torch.float64)
    draws = torch.randint(len(data), (resamples, len(data)), generator=torch.Generator().manual_seed(seed))
    low, high = torch.quantile(data[draws].mean(1), torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def evaluate(
    team: Team,
    samples: Sequence[Sample],
    training: SamplerSettings,
    mode: Mode,
    *,
    seed: int,
    on_done: Callable[[], object] = lambda: None,
) -> tuple[Score, list[Rollout]]:
    """Plays every sample once and scores the team on those that could be judged."""
    if not samples:
        raise ValueError("evaluation got no held-out samples, expected at least one")
    rollouts = team.play(samples, evaluation_sampler(training, mode), seed=seed, on_done=on_done)
    judged = [r for r in rollouts if not math.isnan(r.outcome)]
    if not judged:
        raise ValueError(f"evaluation got no verdict on any of {len(samples)} samples, expected a judge that works")
    low, high = bootstrap_interval([r.outcome for r in judged])
    by_turn = tuple(map(mean, zip(*(r.success_by_turn for r in judged), strict=True)))
    return Score(mode, mean(r.outcome for r in judged), low, high, by_turn, len(judged)), rollouts
