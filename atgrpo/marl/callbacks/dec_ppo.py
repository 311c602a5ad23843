"""Dec-PPO: every agent learns by itself, from its own observation and its own reward."""

from __future__ import annotations

from atgrpo.marl.callbacks.algorithm import Algorithm


class DecPPO(Algorithm):
    """Local critic, local reward (IPPO, arXiv:2011.09533, without a reward in common)."""

    view = "local"
