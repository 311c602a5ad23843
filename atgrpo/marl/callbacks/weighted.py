"""What algorithms share that weigh each agent's step by what it was worth to the team."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from atgrpo.marl.callbacks.algorithm import standardised
from atgrpo.marl.callbacks.mappo import MAPPO
from atgrpo.marl.types import Experience


class Weighted(MAPPO):
    """MAPPO with weights, and a critic of the team's value that shares nothing with the agents'.

    A_group is GAE from the group reward and that value, standardised in each seed as the agents' advantages are.
    """

    group_critic = True

    def __init__(self, gamma: float = 0.99, lam: float = 0.95) -> None:
        super().__init__(gamma, lam)
        self.latest: dict[str, Tensor] = {}
        """Metric of the latest weights -> its value in each seed."""

    def weigh(self, own: Tensor, group: Tensor) -> Tensor:
        """Weights [S, T, E, N] by standardised advantages of agents and team; keeps ``latest``."""
        raise NotImplementedError

    def on_rollout_end(self, trainer: Any, pl_module: Any, experience: Experience) -> Experience:
        """Weights besides, and targets of the team's value."""
        scored = super().on_rollout_end(trainer, pl_module, experience)
        team, following = experience.group_values, experience.next_group_values
        if team is None or following is None or scored.advantages is None:
            raise ValueError("experience got no values of the team, expected those of a group critic")
        raw = self.gae(experience.group_rewards, team, following, experience.terminated, experience.ended)
        weights = self.weigh(scored.advantages, standardised(raw))
        return replace(scored, weights=weights, group_targets=raw + team)


def weight_metrics(weights: Tensor) -> dict[str, Tensor]:
    """What tells whether weights do what they should, seed by seed."""
    rows = weights.flatten(1)
    return {
        "mean": rows.mean(1),
        "std": rows.std(1),
        "max": rows.abs().amax(1),
        "negative": (rows < 0).float().mean(1),
    }
