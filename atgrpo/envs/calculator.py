r"""A problem that an agent may answer at once, or after one call of a calculator, which then takes a turn of its own.

A call makes two samples of a trajectory, an answer one, so it shows what an advantage estimator does to the choice
between the two when turns of different prompts share a group.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from atgrpo.envs.answers import last_boxed
from atgrpo.envs.arithmetic import ArithmeticSyntaxError, evaluate, to_text
from atgrpo.envs.contract import EnvError
from atgrpo.envs.guards import Guarded, expect_one
from atgrpo.envs.short_answers import clipped, exact_match, read_number
from atgrpo.types import Action, Message, Observation, Sample, StepResult

Form = Literal["plain", "reversed"]
TOOL = "tool: "
"""In front of a result."""
MAX_SHOWN = 40
"""Characters that are kept of a response that could not be read."""


@dataclass(frozen=True, slots=True)
class Move:
    """One response of one agent, in the words that later prompts use."""

    agent: str
    said: str
    """What it wrote: as its own turn later, and after its name for the others."""
    reply: str = ""
    """What it was told: the tool's result as shown, or why the response could not be read."""
    answer: str | None = None
    result: str | None = None
    """The tool's result as it should be read."""

    @property
    def valid(self) -> bool:
        """It was a call or an answer."""
        return self.answer is not None or self.result is not None


class Calculator(Guarded[Sample]):
    r"""A solver that calls a calculator or answers; with ``checker``, a second agent with the same choice after it.

    ``calc(12*7)`` as the whole response is a call, whose result stands in the agent's next prompt. A bare number or the
    last ``\boxed{}`` of a response, if it holds a number, is an answer. Anything else is invalid: a call that cannot be
    evaluated, and one beyond ``max_calls``.

    The solver's answer ends the episode; with ``checker`` only the checker's does, which reads what the solver did.
    ``success`` and ``team_reward`` are 1 if the latest answer is right, 0 if it is wrong or there is none yet.
    ``local_reward`` is -1 for an invalid response, else 0: if a right answer earned something beside the team reward,
    answering at once would be paid better than a call that leads to the same answer.

    So a call's own reward is 0 wherever it leads (``step_rewards_complete`` is False), and ``credit: step`` would
    unlearn it. Three regimes:

    - the tool is better: problems too hard to be done in the head, an exact tool (the default);
    - the tool is worse: ``error_rate`` above the share of wrong answers that are given at once;
    - a trap, worse at first and better once its result can be read: ``form: reversed``, which writes the digits of the
      result from the last to the first (84 as ``48``, -120 as ``-021``), and ``demonstrated_misreadings`` near 1.

    Args:
        checker: Whether the team has a checker.
        max_calls: Calls that each agent has.
        error_rate: Share of the calls with a wrong result. Which are wrong is a hash of the sample's id and the
            expression, so a call that is repeated, by any agent in any fork, has the same result.
        form: How the tool writes its result.
        demonstrated_calls: Share of the samples whose demonstration calls the tool, by a hash of the id and the agent.
        demonstrated_misreadings: Share of them whose demonstration repeats a result as the tool writes it.
        solver_prompt: System text of the solver; empty for none.
        checker_prompt: System text of the checker; empty for none.
    """

    roles: ClassVar[tuple[str, ...]] = ("solver", "checker")

    def __init__(
        self,
        checker: bool = False,
        max_calls: int = 1,
        error_rate: float = 0.0,
        form: Form = "plain",
        demonstrated_calls: float = 0.5,
        demonstrated_misreadings: float = 0.0,
        solver_prompt: str = r"Write calc(expression) to use a calculator, or answer with a number in \boxed{}.",
        checker_prompt: str = (
            r"Check the answer. Write calc(expression) to use a calculator, or answer with a number in \boxed{}."
        ),
    ) -> None:
        if max_calls < 1:
            raise ValueError(f"max_calls got {max_calls}, expected at least 1")
        shares = {
            "error_rate": error_rate,
            "demonstrated_calls": demonstrated_calls,
            "demonstrated_misreadings": demonstrated_misreadings,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} got {share}, expected 0 to 1")
        if form not in get_args(Form):
            raise ValueError(f"form got {form!r}, expected one of {get_args(Form)}")
        self.roles = ("solver", "checker") if checker else ("solver",)  # type: ignore[misc]  # its own, not the class's
        self._max_calls, self._error_rate, self._form = max_calls, error_rate, form
        self._demonstrated_calls, self._demonstrated_misreadings = demonstrated_calls, demonstrated_misreadings
        self._prompts = {"solver": solver_prompt, "checker": checker_prompt}
        self._history: tuple[Move, ...] = ()
        self._done = False

    def reset(self, sample: Sample) -> None:
        """Starts an episode.

        Raises:
            ValueError: its answer is no plain number.
        """
        if read_number(sample.answer) is None:
            raise EnvError(f"sample {sample.id!r} got answer {sample.answer!r}, expected a number")
        self._current, self._history, self._done = sample, (), False

    def observe(self, agent: str) -> Observation:
        """System text, the problem, then the agent's own dialogue with what it was told and what the other one did."""
        self._check(agent)
        system: list[Message] = [{"role": "system", "content": self._prompts[agent]}] if self._prompts[agent] else []
        return Observation(agent, (*system, *_dialogue(agent, self._current.prompt, self._history)))

    def parse(self, agent: str, text: str) -> Action:
        r"""A call as the whole text, else a number in the last ``\boxed{}``, else a bare number."""
        self._check(agent)
        if call := re.fullmatch(r"calc\((.*)\)", text.strip(), re.DOTALL):
            move = self._call(agent, call[1])
        else:
            boxed = last_boxed(text)
            answer = read_number(text if boxed is None else boxed)
            move = Move(agent, answer, answer=answer) if answer else _unreadable(agent, text, "no number")
        return Action(move, move.valid)

    def _call(self, agent: str, expression: str) -> Move:
        said = f"calc({''.join(expression.split())})"
        if sum(move.agent == agent and move.result is not None for move in self._history) >= self._max_calls:
            return _unreadable(agent, said, "no calls left")
        try:
            value = evaluate(expression)
        except ArithmeticSyntaxError as error:
            return _unreadable(agent, said, str(error))
        rng = self._stream(said)
        if rng.random() < self._error_rate:
            value += rng.choice((-10, -2, -1, 1, 2, 10))
        result = to_text(value)
        return Move(agent, said, TOOL + (_reversed(result) if self._form == "reversed" else result), result=result)

    def step(self, agent: str, action: Action) -> StepResult:
        """Adds the move to the history and rewards it; ``info["tool"]`` is whether it was a call.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        move = self._made(agent, action, Move)
        self._history = (*self._history, move)
        self._done = agent == self.roles[-1] and move.answer is not None
        return StepResult(self.success, 0.0 if move.valid else -1.0, self._done, info={"tool": move.result is not None})

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """Nothing, of a team that has the agent whose answer ends an episode.

        Raises:
            ValueError: it is missing; every episode would go on until the sampler's turns have run out.
        """
        expect_one(agents, self.roles[-1:], "whose answer ends an episode (a solver alone is env.checker=false)")
        return ()

    @property
    def done(self) -> bool:
        """The agent that has the last word has answered."""
        return self._done

    @property
    def success(self) -> float:
        """1 if the latest answer is right, else 0."""
        answers = [move.answer for move in self._history if move.answer is not None]
        return float(bool(answers) and exact_match(answers[-1], self._current.answer))

    def demonstrate(self, agent: str) -> str | None:
        """The latest result of the tool; before there is one, a call or the gold answer at once.

        A result is taken over even where the tool was wrong: whether it may be trusted is for the training to find out.
        Problems without ``meta["expression"]`` are answered at once.
        """
        self._check(agent)
        if self._done:
            return None
        if calls := [move for move in self._history if move.result is not None]:
            misread = self._stream("misread", agent).random() < self._demonstrated_misreadings
            return calls[-1].reply.removeprefix(TOOL) if misread else calls[-1].result
        expression = self._current.meta.get("expression")
        if isinstance(expression, str) and self._stream("call", agent).random() < self._demonstrated_calls:
            return f"calc({expression})"
        return self._current.answer.strip()

    def _stream(self, *label: str) -> random.Random:
        return random.Random("|".join((self._current.id, *label)))


def _reversed(number: str) -> str:
    digits = number.removeprefix("-")
    return number[: len(number) - len(digits)] + digits[::-1]


def _unreadable(agent: str, text: str, reason: str) -> Move:
    return Move(agent, clipped(text, MAX_SHOWN) or "?", f"error: {reason}")


def _dialogue(agent: str, prompt: str, history: Sequence[Move]) -> list[Message]:
    """The agent's earlier turns and the message it answers now; the problem opens the first one."""
    messages: list[Message] = []
    news = [prompt]
    for move in history:
        if move.agent == agent:
            messages += [_user(news or [prompt]), {"role": "assistant", "content": move.said}]
            news = []
        else:
            news.append(f"{move.agent}: {move.said}")
        news += [move.reply] if move.reply else []
    return [*messages, _user(news or [prompt])]


def _user(lines: Sequence[str]) -> Message:
    return {"role": "user", "content": "\n".join(lines)}
