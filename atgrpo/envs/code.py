"""A coder writes a program, a tester writes tests for it; both read where the two disagree."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from atgrpo.envs.code_judge import Program, Verdict, judge, read_program
from atgrpo.envs.code_prompts import (
    FUNCTION_SHOTS,
    STDIN_SHOTS,
    ask,
    demonstrate,
    news,
    program_block,
    test_lines,
)
from atgrpo.envs.code_tests import Case, Problem, read_tests
from atgrpo.envs.guards import Guarded
from atgrpo.envs.shown import head
from atgrpo.sandbox.runner import Sandbox, SandboxError
from atgrpo.types import Action, Message, Observation, Sample, StepResult

REMEMBERED = 256
"""(program, tests) pairs whose outcome a tree keeps."""
MAX_SAID = 2000
"""How much an agent reads of its own last response."""


@dataclass(frozen=True, slots=True)
class Response:
    """An agent's latest response, as far as it could be read."""

    agent: str
    said: str
    """What it reads later as its own turn."""
    fault: str = ""
    """Why nothing in it can be used."""
    program: str | None = None
    tests: tuple[Case, ...] = ()


class CodeTeam(Guarded[Problem]):
    r"""Coder and tester on one problem with hidden tests; in parallel or in sequence.

    The coder answers with a ``python`` block: a function of a given name, or a program on stdin (``Problem`` says which
    and what ``Sample.meta`` must hold). The tester answers with tests (see ``read_tests``). From the second turn on the
    coder reads its last program and up to three of the tester's tests that it failed (input, output, expected), the
    tester its last tests and what the program gave on them. The episode is over once the program passes all of the
    tester's tests, right or wrong; the sampler bounds the turns. No prompt holds a hidden test, and no program meets an
    expected value.

    ``team_reward`` is the share of hidden tests that the team's program passes now, whoever acts; 0 without a program.
    ``success`` is 1 if it passes all of them, else 0.

    ``local_reward`` is by how much the agent's own level rose (so it adds up to the last level, however long the
    episode): for the coder the level is its program's share of hidden tests; for the tester

        level = (tests that the reference solution passes) / ``tests``

    over its first ``tests`` tests with new inputs. Fewer tests cannot score more, and copies of an example in the
    prompt, repetitions and unreadable lines count for nothing. A response without a program or without one test that
    counts is invalid: it earns -1 and takes the place of what was there before (level 0). Never better than an honest
    failure: that loses the level before, 1 at most. Where no reference is known the tester's local reward is None.

    A program that crashes or runs out of time fails the test. Where the sandbox itself fails the rewards are None, and
    where it fails on the hidden tests ``success`` is NaN. Outcomes are kept per tree, so repeating a step is cheap.

    Roles, ending and rewards follow arXiv:2510.11062; that locals are differences and that the number of tests is
    given are our own rules.

    Args:
        sandbox: Runs the programs; one with its own default limits if None.
        tests: Tests that the tester is asked for.
        examples: Public examples in the prompts, at most.
        shots: Demonstrations in front of every prompt; the last ones of the list, at most 3.
        coder_prompt: System text of the coder; empty for none.
        tester_prompt: System text of the tester; empty for none.
    """

    roles = ("coder", "tester")
    step_rewards_complete = True

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        tests: int = 3,
        examples: int = 1,
        shots: int = 3,
        coder_prompt: str = "You write Python programs.",
        tester_prompt: str = "You write tests for Python programs.",
    ) -> None:
        if tests < 1:
            raise ValueError(f"tests got {tests}, expected at least 1")
        if examples < 0:
            raise ValueError(f"examples got {examples}, expected at least 0")
        if not 0 <= shots <= len(FUNCTION_SHOTS):
            raise ValueError(f"shots got {shots}, expected 0 to {len(FUNCTION_SHOTS)}")
        self._tests, self._examples, self._shots = tests, examples, shots
        self._prompts = {"coder": coder_prompt, "tester": tester_prompt}
        self._sandbox = sandbox or Sandbox()
        # Shared by all forks: merging parallel steps applies them once more.
        self._judge: Callable[[str, str | None, tuple[Case, ...]], tuple[Verdict, ...]] = lru_cache(REMEMBERED)(
            partial(judge, self._sandbox)
        )
        self._prompt = ""
        self._start()

    def _start(self) -> None:
        self._responses: Mapping[str, Response] = {}
        self._levels: Mapping[str, float] = dict.fromkeys(self.roles, 0.0)
        self._verdicts: tuple[Verdict, ...] = ()
        self._done, self._success = False, 0.0

    def reset(self, sample: Sample) -> None:
        """Starts on ``sample``.

        Raises:
            ValueError: its ``meta`` is no coding problem.
        """
        self._prompt, self._current = sample.prompt, Problem.of(sample)
        self._start()

    def observe(self, agent: str) -> Observation:
        """System text, demonstrations, the problem; then the agent's last response and what came of it."""
        self._check(agent)
        problem = self._current
        messages: list[Message] = []
        if self._prompts[agent]:
            messages.append({"role": "system", "content": self._prompts[agent]})
        shots = STDIN_SHOTS if problem.function is None else FUNCTION_SHOTS
        for shot in shots[len(shots) - self._shots :]:
            messages += demonstrate(agent, shot, min(self._examples, 1), self._tests)
        user = ask(agent, self._prompt, problem.function, self._public, self._tests)
        messages.append({"role": "user", "content": user})
        if (own := self._responses.get(agent)) is not None:
            messages.append({"role": "assistant", "content": own.said})
            program = self._program is not None
            text = news(agent, problem.function, program, self._team_tests, self._verdicts, own.fault)
            messages.append({"role": "user", "content": text})
        return Observation(agent, tuple(messages))

    def parse(self, agent: str, text: str) -> Action:
        """Reads a program or tests out of a response."""
        self._check(agent)
        function = self._current.function
        if agent == "coder":
            found = read_program(text, function)
            response = self._programmed(found, text)
        else:
            tests = read_tests(text, function, self._tests, self._public)
            said = head(test_lines(tests, function), MAX_SAID) if tests else _echo(text)
            response = Response(agent, said, "" if tests else "no new test", tests=tests)
        return Action(response, not response.fault)

    def step(self, agent: str, action: Action) -> StepResult:
        """Puts the response in the place of the agent's last one and judges the pair.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        response = self._made(agent, action, Response)
        self._responses = {**self._responses, agent: response}
        self._verdicts, self._success = (), math.nan
        try:
            share = self._share()
            self._success = float(share == 1.0)
            local = self._local_reward(response, share)
            if self._program is not None:
                self._verdicts = self._judge(self._program, self._current.function, self._team_tests)
        except SandboxError as error:
            return StepResult(None, None, done=False, info={"sandbox_error": str(error)})
        self._done = bool(self._verdicts) and all(verdict.passed for verdict in self._verdicts)
        return StepResult(share, local, self._done)

    def _share(self) -> float:
        if self._program is None:
            return 0.0
        return _passed(self._judge(self._program, self._current.function, self._current.hidden))

    def _local_reward(self, response: Response, share: float) -> float | None:
        before = self._levels[response.agent]
        problem = self._current
        if response.fault:
            level, earned = 0.0, -1.0
        elif response.agent == "coder":
            level, earned = share, share - before
        elif problem.reference is None:
            return None
        else:
            agreeing = self._judge(problem.reference, problem.function, response.tests)
            level = sum(verdict.passed for verdict in agreeing) / self._tests
            earned = level - before
        self._levels = {**self._levels, response.agent: level}
        return earned

    def demonstrate(self, agent: str) -> str | None:
        """The reference solution; public examples that the prompt does not show. None where there is none."""
        self._check(agent)
        problem = self._current
        if agent == "coder":
            return None if problem.reference is None else program_block(problem.reference.strip())
        spare = problem.examples[self._examples :][: self._tests]
        return test_lines(spare, problem.function) if spare else None

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """How programs are kept apart here; tests of a tester alone are judged by running the reference."""
        return (self._sandbox.describe(),)

    @property
    def done(self) -> bool:
        """The program passes the tester's tests."""
        return self._done

    @property
    def success(self) -> float:
        """1 if the program passes every hidden test, else 0; NaN where the sandbox failed on it."""
        return self._success

    @property
    def _public(self) -> tuple[Case, ...]:
        return self._current.examples[: self._examples]

    @property
    def _program(self) -> str | None:
        coder = self._responses.get("coder")
        return None if coder is None else coder.program

    @property
    def _team_tests(self) -> tuple[Case, ...]:
        tester = self._responses.get("tester")
        return () if tester is None else tester.tests

    def _programmed(self, found: Program, text: str) -> Response:
        if found.source is None:
            return Response("coder", _echo(text), found.fault)
        said = program_block(head(found.source.strip("\n"), MAX_SAID))
        return Response("coder", said, program=found.source)


def _passed(verdicts: tuple[Verdict, ...]) -> float:
    return sum(verdict.passed for verdict in verdicts) / len(verdicts)


def _echo(text: str) -> str:
    """An unusable response, as short as it may be."""
    return head(" ".join(text.split()), 200) or "?"
