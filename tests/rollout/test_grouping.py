from __future__ import annotations

import pytest

from atgrpo.rollout.grouping import (
    GroupKey,
    agent,
    agent_trajectory,
    agent_turn,
    anchor,
    everything,
    mixed_context_share,
    prompt,
    trajectory,
    turn_number,
)
from tests.rollout.helpers import make_turn

BASE = make_turn()


@pytest.mark.parametrize(
    ("key", "told_apart_by"),
    [
        (agent_turn, {"tree", "node", "agent", "turn"}),
        (agent, {"tree", "agent"}),
        (turn_number, {"tree", "turn"}),
        (prompt, {"tree"}),
        (trajectory, {"tree", "branch"}),
        (agent_trajectory, {"tree", "branch", "agent"}),
        (anchor, {"tree", "agent", "prompt"}),
        (everything, set()),
    ],
)
def test_a_key_tells_apart_exactly_what_it_names(key: GroupKey, told_apart_by: set[str]) -> None:
    others = {
        "tree": make_turn(tree=1),
        "node": make_turn(node=1),
        "agent": make_turn(agent="b"),
        "turn": make_turn(turn=1),
        "branch": make_turn(branch=1),
        "prompt": make_turn(prompt=(1, 2)),
        "response": make_turn(ids=(1, 2)),
    }
    assert {field for field, other in others.items() if key(other) != key(BASE)} == told_apart_by


def test_share_of_groups_whose_members_saw_different_prompts() -> None:
    same = [make_turn(group=0), make_turn(group=0, ids=(9,))]
    mixed = [make_turn(group=1), make_turn(group=1, prompt=(1,)), make_turn(group=1, prompt=(1,))]
    alone = [make_turn(group=2, prompt=(4,)), make_turn(group=3, prompt=(5,))]
    excluded = [make_turn(group=None, prompt=(6,)), make_turn(group=None, prompt=(7,))]
    assert mixed_context_share([*same, *mixed, *alone, *excluded]) == 1 / 4
    assert mixed_context_share(excluded) == 0.0
