"""What every environment of ours refuses, on the smallest one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from atgrpo.envs.guards import Guarded
from atgrpo.types import Action, Observation, Sample, StepResult


@dataclass(frozen=True)
class Word:
    agent: str
    text: str


class Echo(Guarded[str]):
    """Two agents repeat the prompt; the second time ends it."""

    roles = ("a", "b")

    def reset(self, sample: Sample) -> None:
        self._current, self._said = sample.prompt, 0

    def observe(self, agent: str) -> Observation:
        self._check(agent)
        return Observation(agent, [{"role": "user", "content": self._current}])

    def parse(self, agent: str, text: str) -> Action:
        self._check(agent)
        return Action(Word(agent, text), valid=True)

    def step(self, agent: str, action: Action) -> StepResult:
        right = self._made(agent, action, Word).text == self._current
        self._said += 1
        return StepResult(float(right), float(right), self.done)

    @property
    def done(self) -> bool:
        return self._said == 2

    @property
    def success(self) -> float:
        return 0.0


def echo() -> Echo:
    env = Echo()
    env.reset(Sample("s", "hm", "", {}))
    return env


def test_the_value_of_an_action_is_handed_on_for_as_long_as_the_episode_is_open() -> None:
    env = echo()
    assert env.step("a", env.parse("a", "hm")) == StepResult(1.0, 1.0, done=False)
    assert env.step("b", env.parse("b", "no")) == StepResult(0.0, 0.0, done=True)
    with pytest.raises(ValueError, match=r"^step of 'a' got a finished episode, expected an open one$"):
        env.step("a", env.parse("a", "hm"))
    env.reset(Sample("t", "ho", "", {}))
    assert env.step("a", env.parse("a", "ho")).team_reward == 1.0


def test_a_fork_goes_on_alone() -> None:
    env = echo()
    fork = env.fork()
    fork.step("a", env.parse("a", "hm"))
    fork.step("b", env.parse("b", "hm"))
    assert (fork.done, env.done) == (True, False)


def test_nothing_can_be_done_before_a_reset() -> None:
    env = Echo()
    for attempt in (lambda: env.observe("a"), lambda: env.step("a", env.parse("a", "hm"))):
        with pytest.raises(ValueError, match=r"^environment got no sample, expected reset first$"):
            attempt()


def test_a_stranger_is_refused_by_name() -> None:
    env = echo()
    for attempt in (
        lambda: env.observe("c"),
        lambda: env.parse("c", "hm"),
        lambda: env.step("c", Action(Word("c", "hm"), valid=True)),
    ):
        with pytest.raises(ValueError, match=r"^agent got 'c', expected one of \('a', 'b'\)$"):
            attempt()


@pytest.mark.parametrize("value", [None, "hm", Word("b", "hm")])
def test_an_action_that_parse_did_not_make_for_the_agent_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^step of 'a' got .*, expected an action that parse made for this agent$"):
        echo().step("a", Action(value, valid=True))
