"""Dr. MAS (arXiv:2602.08847): GRPO with a baseline and a scale of each agent's own."""

from __future__ import annotations

from atgrpo.rollout.grouping import agent, agent_trajectory
from atgrpo.training.callbacks.grpo import OneVote


class DrMAS(OneVote):
    """``A = (R - mean_agent) / (std_agent + eps)`` over the trajectories of the prompt in which the agent acted.

    R is the return of the agent's own steps, which under ``credit: outcome`` is that of the trajectory, as in the
    paper. One vote per trajectory, however often the agent acted in it; the paper's equation counts steps.
    """

    vote = staticmethod(agent_trajectory)
    key = staticmethod(agent)
