from __future__ import annotations

import pytest

from atgrpo.training.filters import GroupFilter
from atgrpo.types import Rollout
from tests.rollout.helpers import make_rollout, make_turn


def rollout(*advantages: float | None, group: int = 0) -> Rollout:
    return make_rollout(
        *(make_turn(group=None if a is None else group, advantage=a, branch=i) for i, a in enumerate(advantages))
    )


ALIVE, FLAT, EXCLUDED = rollout(0.5, 0.0, -0.5), rollout(0.0, 0.0, group=1), rollout(None, None)


def kept(mode: str, *rollouts: Rollout) -> list[list[float | None]]:
    return [[turn.advantage for turn in r.turns] for r in GroupFilter(mode=mode).apply(rollouts)]  # type: ignore[arg-type]


def test_none_keeps_everything() -> None:
    assert kept("none", ALIVE, FLAT, EXCLUDED) == [[0.5, 0.0, -0.5], [0.0, 0.0], [None, None]]


@pytest.mark.parametrize("mode", ["drop", "replace"])
def test_groups_without_variance_leave_the_loss_and_zeros_of_other_groups_stay(mode: str) -> None:
    assert kept(mode, ALIVE, FLAT, EXCLUDED) == [[0.5, 0.0, -0.5], [None, None], [None, None]]


def test_a_rollouts_groups_are_treated_one_by_one() -> None:
    mixed = make_rollout(*ALIVE.turns, *FLAT.turns)
    assert kept("drop", mixed) == [[0.5, 0.0, -0.5, None, None]]


def test_dropping_leaves_rewards_and_groups_for_the_metrics() -> None:
    [dropped] = GroupFilter(mode="drop").apply([FLAT])
    assert [(turn.group, turn.rewards) for turn in dropped.turns] == [(turn.group, turn.rewards) for turn in FLAT.turns]


@pytest.mark.parametrize(
    ("grown", "missing"),
    [
        ([ALIVE] * 4, 0),
        ([ALIVE] * 3 + [FLAT], 1),
        ([FLAT] * 2 + [EXCLUDED] * 2, 4),
        ([ALIVE] * 3 + [FLAT, ALIVE], 0),
        ([FLAT] * 7, 1),  # all four are missing, but 2 x 4 prompts is the cap
        ([FLAT] * 8, 0),
    ],
)
def test_replace_asks_for_as_many_prompts_as_taught_nothing_up_to_the_cap(grown: list[Rollout], missing: int) -> None:
    assert GroupFilter(mode="replace", cap=2.0).missing(grown, 4) == missing


@pytest.mark.parametrize("mode", ["none", "drop"])
def test_only_replace_grows_more(mode: str) -> None:
    assert GroupFilter(mode=mode).missing([FLAT], 4) == 0  # type: ignore[arg-type]
