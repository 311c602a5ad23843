"""What every environment inherits: forks that share nothing."""

from __future__ import annotations

from random import Random

from atgrpo.envs.base import Environment
from atgrpo.types import Action, Observation, Sample, StepResult


class Dice(Environment):
    """Keeps a list of lists and a generator, both changed in place by every step."""

    roles = ("a",)

    def reset(self, sample: Sample) -> None:
        self.log: list[list[str]] = [["start"], []]
        self.random = Random(sample.meta["seed"])

    def observe(self, agent: str) -> Observation:
        return Observation(agent, [])

    def parse(self, agent: str, text: str) -> Action:
        return Action(text, valid=True)

    def step(self, agent: str, action: Action) -> StepResult:
        self.log[0].append(action.value)
        return StepResult(self.random.random(), 0.0, done=False)

    @property
    def done(self) -> bool:
        return False

    @property
    def success(self) -> float:
        return float(len(self.log[0]))


def test_there_is_nothing_to_know_unless_a_task_says_so() -> None:
    assert Dice().notes(["a"]) == ()


def dice() -> Dice:
    root = Dice()
    root.reset(Sample("s", "?", "!", {"seed": 5}))
    return root


# AReaL issue 432, Gymnasium issue 779: branches shared a list, and a copy drew from its parent's generator.
def test_three_branches_append_to_lists_of_their_own_and_leave_the_roots_list_and_generator() -> None:
    root = dice()
    root.step("a", Action("x", valid=True))
    generator = root.random.getstate()
    forks = [root.fork() for _ in range(3)]
    for i, fork in enumerate(forks):
        fork.step("a", Action(str(i), valid=True))
    assert [fork.log[0] for fork in forks] == [["start", "x", str(i)] for i in range(3)]
    assert root.log == [["start", "x"], []]
    assert root.random.getstate() == generator


def test_forks_meet_the_same_chance_and_so_does_their_parent_later() -> None:
    root = dice()
    forks = [root.fork() for _ in range(3)]
    drawn = [env.step("a", Action("x", valid=True)).team_reward for env in (*forks, root)]
    assert drawn == [Random(5).random()] * 4
