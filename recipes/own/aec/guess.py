"""Two agents take turns in guessing a digit; both hear whether it was too low (<) or too high (>)."""

from __future__ import annotations

import random
from typing import Any

from gymnasium.spaces import Discrete, Text
from pettingzoo import AECEnv


class Guess(AECEnv):
    """Both are paid the share of the digits that a guess rules out; a hit rules out all that are left."""

    metadata = {"name": "guess_v0"}  # noqa: RUF012

    def __init__(self, guesses: int = 4) -> None:
        super().__init__()
        self.possible_agents = ["ann", "bob"]
        self.guesses = guesses

    def observation_space(self, agent: str) -> Text:
        return Text(64)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(10)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.number = random.Random(seed).randrange(10)
        self.heard: list[str] = []
        self.left = range(10)
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {"success": False} for agent in self.agents}

    def observe(self, agent: str) -> str:
        return " ".join(["0-9", *self.heard])

    def step(self, action: int) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        hit = action == self.number
        self.heard.append(f"{action}{'=' if hit else '<' if action < self.number else '>'}")
        before, low, high = len(self.left), self.left.start, self.left.stop
        if hit:
            self.left = range(0)
        else:
            self.left = range(max(low, action + 1), high) if action < self.number else range(low, min(high, action))
        self.rewards = dict.fromkeys(self.agents, (before - len(self.left)) / 10)
        self.terminations = dict.fromkeys(self.agents, hit)
        self.truncations = dict.fromkeys(self.agents, not hit and len(self.heard) == self.guesses)
        self.infos = {name: {"success": hit} for name in self.agents}
        self._accumulate_rewards()
        self.agent_selection = self.agents[1 - self.agents.index(agent)]
