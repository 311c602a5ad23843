"""MAPPO: decentralised actors, a critic that sees what all agents see."""

from __future__ import annotations

from atgrpo.marl.callbacks.algorithm import Algorithm


class MAPPO(Algorithm):
    """Central critic with a value for each agent, whose reward is its own (arXiv:2103.01955)."""

    view = "central"
