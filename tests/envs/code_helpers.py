"""A coding team whose programs run in this process: they are our own, and quick."""

from __future__ import annotations

import json
from typing import Any

import pytest

import atgrpo.envs.code as code_env
from atgrpo.envs.code import CodeTeam
from atgrpo.envs.code_judge import Verdict
from atgrpo.envs.code_tests import Case
from atgrpo.sandbox.runner import SandboxError
from atgrpo.types import Sample, StepResult

SAMPLE = Sample(
    "s",
    "Write f(n) that returns n plus 3.",
    "",
    {
        "function": "f",
        "examples": [[[1], 4], [[20], 23], [[30], 33], [[40], 43]],
        "tests": [[[7001], 7004], [[7002], 7005], [[7003], 7006], [[7004], 7007]],
        "reference": "def f(n):\n    return n + 3",
    },
)
RIGHT = "def f(n): return n + 3"
HALF = "def f(n): return n + 3 if n != 7001 and n != 7002 else 0"
WRONG = "def f(n): return n + 1"
GOOD = "f(2) == 5\nf(3) == 6\nf(4) == 7"


class Inside:
    """Stands in for ``judge``; counts what it ran, and fails as a sandbox may when it is told to."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, tuple[Case, ...]]] = []
        self.broken = False

    def __call__(self, sandbox: object, source: str, function: str, cases: tuple[Case, ...]) -> tuple[Verdict, ...]:
        if self.broken:
            raise SandboxError("no room")
        self.runs.append((source, cases))
        names: dict[str, Any] = {}
        exec(source, names)
        verdicts = []
        for case in cases:
            try:
                value = names[function](*json.loads(case.given))
                verdicts.append(Verdict(value == json.loads(case.expected), f"gave {value!r}"))
            except Exception as error:
                verdicts.append(Verdict(False, f"failed: {error!r}"))
        return tuple(verdicts)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    stand_in = Inside()
    monkeypatch.setattr(code_env, "judge", stand_in)
    return stand_in


def team(sample: Sample = SAMPLE, **settings: Any) -> CodeTeam:
    env = CodeTeam(**{"shots": 0, "coder_prompt": "", "tester_prompt": "", **settings})
    env.reset(sample)
    return env


def act(env: CodeTeam, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def chat(env: CodeTeam, agent: str) -> list[str]:
    return [message["content"] for message in env.observe(agent).messages]
