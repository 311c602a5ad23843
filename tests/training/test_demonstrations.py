from __future__ import annotations

import pytest

from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.demonstrations import Demonstration, demonstrations
from tests.training.counting import Counting, Digits

AGENTS = {"tool": "a", "reasoner": "b"}
SAMPLE = Digits().split("train")[3]


def user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def test_each_role_sees_what_the_role_before_it_did_and_a_finished_episode_ends() -> None:
    shown = list(demonstrations(Counting, AGENTS, TreeSampler(turns=3), [SAMPLE]))
    assert shown == [
        Demonstration("tool", user("after 3?"), "4"),
        Demonstration("reasoner", user("after 3? tool:4"), "4"),
    ]


def test_roles_that_act_at_once_see_the_same_state() -> None:
    shown = list(demonstrations(Counting, AGENTS, TreeSampler(turns=3, order="parallel"), [SAMPLE]))
    assert [d.messages for d in shown] == [user("after 3?"), user("after 3?")]


class Silent(Counting):
    def demonstrate(self, agent: str) -> str | None:
        return None if agent == "reasoner" else "4"


class Unreadable(Counting):
    def demonstrate(self, agent: str) -> str | None:
        return "four"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Silent, "Silent demonstrates nothing for reasoner, expected warm_start.steps=0"),
        (Unreadable, r"Unreadable.demonstrate\('tool'\) got 'four', expected what parse can read"),
    ],
)
def test_a_task_that_cannot_show_how_it_is_done_is_refused(environment: type[Counting], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(demonstrations(environment, AGENTS, TreeSampler(), [SAMPLE]))
