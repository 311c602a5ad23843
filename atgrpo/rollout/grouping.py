"""Key functions: turns whose keys are equal form a group.

The key holds the tree instance (``tree``), never the prompt's text: the same problem drawn twice is two groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from atgrpo.types import Turn

GroupKey = Callable[[Turn], Hashable]


def agent_turn(turn: Turn) -> Hashable:
    """AT-GRPO (arXiv:2510.11062): same prompt instance, agent and turn."""
    return turn.key.tree, turn.key.node, turn.key.agent, turn.key.turn


def agent(turn: Turn) -> Hashable:
    """Agent-wise half of AT-GRPO: turns are pooled."""
    return turn.key.tree, turn.key.agent


def turn_number(turn: Turn) -> Hashable:
    """Turn-wise half of AT-GRPO: agents are pooled."""
    return turn.key.tree, turn.key.turn


def prompt(turn: Turn) -> Hashable:
    """Everything that was sampled for one prompt instance, whatever the agent, turn or context."""
    return turn.key.tree


def trajectory(turn: Turn) -> Hashable:
    """One trajectory of the parallel sampler."""
    return turn.key.tree, turn.key.branch


def agent_trajectory(turn: Turn) -> Hashable:
    """One agent's part of a trajectory of the parallel sampler."""
    return turn.key.tree, turn.key.branch, turn.key.agent


def anchor(turn: Turn) -> Hashable:
    """The same agent before the same prompt, whichever trajectory of the prompt instance led there."""
    return turn.key.tree, turn.key.agent, turn.prompt_ids


def everything(turn: Turn) -> Hashable:
    """All that was sampled."""
    return ()


def mixed_context_share(turns: Iterable[Turn]) -> float:
    """Share of the groups (``Turn.group``) whose members answered different prompts; 0 when there are no groups."""
    prompts: dict[int, set[tuple[int, ...]]] = defaultdict(set)
    for turn in turns:
        if turn.group is not None:
            prompts[turn.group].add(turn.prompt_ids)
    return sum(len(seen) > 1 for seen in prompts.values()) / len(prompts) if prompts else 0.0
