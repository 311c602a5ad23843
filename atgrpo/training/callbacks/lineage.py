"""Which response every response of a tree has grown from, and what the rollouts of a tree are worth."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atgrpo.functional.advantages import leaves
from atgrpo.training.callbacks.advantage import credits_of
from atgrpo.types import Turn


def parents(turns: Sequence[Turn]) -> Int[Tensor, " N"]:
    """Row number of the response whose state each one started from; -1 for a tree's first step.

    A step of the path starts from the candidate that the step before it kept. A playout starts from its candidate and
    goes on from itself. Steps come in the order of their turns and, within a turn, in that in which the tree's agents
    first appear; rows may otherwise come in any order. For ``order: sequence`` only: agents that act at once do not
    start from each other.
    """
    rows_of_tree: dict[int, list[int]] = defaultdict(list)
    for row, turn in enumerate(turns):
        rows_of_tree[turn.key.tree].append(row)
    found = torch.full((len(turns),), -1, dtype=torch.long)
    for rows in rows_of_tree.values():
        for row, parent in _within_tree(turns, rows).items():
            found[row] = parent
    return found


def rollout_returns(turns: Sequence[Turn], parents: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """For a response that nothing has grown from, the return of the rollout that ends with it; its credit for others.

    A rollout's return is as under ``credit: outcome``: the team's part of the last credit plus the mean local reward of
    all steps from the tree's root; NaN if one of them is missing.
    """
    returns = credits_of(turns)
    for row in leaves(parents).nonzero().flatten().tolist():
        own = _local(turns[row])
        locals_, above = [own], int(parents[row])
        while above >= 0:
            locals_.append(_local(turns[above]))
            above = int(parents[above])
        # A rounded mean of equal numbers would make equal returns differ.
        mean = min(max(sum(locals_) / len(locals_), min(locals_)), max(locals_))
        returns[row] += mean - own
    return returns


def _local(turn: Turn) -> float:
    return math.nan if turn.rewards.local is None else turn.rewards.local


def _within_tree(turns: Sequence[Turn], rows: Sequence[int]) -> dict[int, int]:
    agents = {agent: i for i, agent in enumerate(dict.fromkeys(turns[row].key.agent for row in rows))}
    steps: dict[tuple[int, int], list[int]] = defaultdict(list)
    playouts: dict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(dict)
    for row in rows:
        key = turns[row].key
        place = key.turn, agents[key.agent]
        if key.node:
            playouts[key.node, key.branch][place] = row
        else:
            steps[place].append(row)
    path = [steps[place] for place in sorted(steps)]
    found: dict[int, int] = {}
    for before, after in pairwise(path):
        kept = next(row for row in before if turns[row].selected)
        found |= dict.fromkeys(after, kept)
    for (node, branch), playout in playouts.items():
        at = next(row for row in path[node - 1] if turns[row].key.branch == branch)
        for place in sorted(playout):
            found[playout[place]] = at
            at = playout[place]
    return found
