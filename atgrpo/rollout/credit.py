"""What a candidate's reward is: a setting of its own beside sampler and grouping.

The team reward is a level (how good the state is), the local reward is what one step earned. Every rule keeps the form
``alpha * team + local`` and differs in whose team level and which local rewards it takes:

=============  ========  ====================================================================================
rule           sampler   credit of a step
=============  ========  ====================================================================================
step           both      team and local right after the step itself (seed rule of AT-GRPO)
continuation   tree      mean team at the ends of one-response-per-step playouts from the candidate; own local
backup         tree      mean team over all that was grown below the candidate; own local
return_to_go   parallel  final team; mean of the same agent's locals from this step on
outcome        parallel  final team; mean of all locals of the trajectory: one number for every step of it
=============  ========  ====================================================================================

Locals are averaged, not summed: an episode that is dragged out earns no more than one that ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from atgrpo.rollout.walk import Candidate, Node, Path

TreeCredit = Literal["step", "continuation", "backup"]
ParallelCredit = Literal["step", "return_to_go", "outcome"]


def mix(alpha: float, team: float | None, local: float | None) -> float | None:
    """``alpha * team + local``; missing if either is."""
    return None if team is None or local is None else alpha * team + local


def mean_known(values: Sequence[float | None]) -> float | None:
    """Mean of those that are there; missing if none is."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    return None if None in values else mean_known(values)


def step_credit(alpha: float, candidate: Candidate) -> float | None:
    """The step's own reward."""
    return mix(alpha, candidate.result.team_reward, candidate.result.local_reward)


def trajectory_credits(alpha: float, path: Path, rule: ParallelCredit) -> list[float | None]:
    """One credit per node of a trajectory (whose nodes have one candidate each)."""
    locals_ = [node.pick.result.local_reward for node in path.nodes]
    if rule == "step":
        return [step_credit(alpha, node.pick) for node in path.nodes]
    if rule == "outcome":
        return [mix(alpha, path.team_reward, _mean_of_all(locals_))] * len(path.nodes)
    credits = []
    for i, node in enumerate(path.nodes):
        own = [local for later, local in zip(path.nodes[i:], locals_[i:], strict=True) if later.agent == node.agent]
        credits.append(mix(alpha, path.team_reward, _mean_of_all(own)))
    return credits


def backed_up_credits(
    alpha: float, nodes: Sequence[Node], last_stage: int, *, end: float | None = None
) -> list[tuple[float | None, ...]]:
    """Credits of a tree's nodes by what was grown below each candidate.

    The team value of a candidate is its own level where the episode ended or ``last_stage`` was reached, and the mean
    of the values of the stage grown from it otherwise. Where growth stopped although no candidate was final by itself
    (agents that acted at once finished together, an overlong prompt), the chosen ones take ``end``, the path's level.
    A candidate that was neither final nor chosen has no value: it is excluded rather than judged by a level that says
    nothing about where it leads.
    """
    below = end
    credits: dict[int, tuple[float | None, ...]] = {}
    for stage, group in groupby(reversed(list(enumerate(nodes))), key=lambda item: item[1].stage):
        values_of_stage: list[float | None] = []
        for number, node in group:
            values = [
                c.result.team_reward if c.result.done or stage == last_stage else below if i == node.chosen else None
                for i, c in enumerate(node.candidates)
            ]
            locals_ = [c.result.local_reward for c in node.candidates]
            credits[number] = tuple(mix(alpha, v, local) for v, local in zip(values, locals_, strict=True))
            values_of_stage += [v for v in values if v is not None]
        below = mean_known(values_of_stage)
    return [credits[number] for number in range(len(nodes))]
