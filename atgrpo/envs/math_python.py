r"""A tool agent writes a Python program that prints the answer, a reasoner answers in ``\boxed{}``."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from atgrpo.envs.code_judge import may_be_cut, read_program
from atgrpo.envs.code_prompts import program_block
from atgrpo.envs.math import MathTeam, Move, readable
from atgrpo.envs.shown import head
from atgrpo.sandbox.runner import Run, Sandbox, SandboxError
from atgrpo.types import Action, StepResult

MAX_SAID = 2000
"""Most characters of a program that the team reads later."""
MAX_WORDS = 80
"""Most characters of an error, of an output that is no answer, or of a response without a program."""


@dataclass(frozen=True, slots=True)
class Unjudged(Move):
    """A program of which nothing is known: the sandbox itself failed."""

    failure: str = ""


class PythonMathTeam(MathTeam):
    r"""``MathTeam`` with a tool agent that writes a program: roles, ending and rewards are the same.

    The tool answers with a ``python`` block. It is run in the sandbox, without input and without packages, and the last
    line of its output that is not empty is the tool's value. Without a program, where it crashes or is stopped, and
    where that line is missing or is no number or expression, there is no value: the local reward is -1, and the team
    reads why. The reasoner reads the program and its value, the tool its last programs and what came of them.

    Where the sandbox itself fails both rewards are None and the team's state stays as it was; ``success`` is NaN until
    the next answer where it is the tool's value that counts.

    Roles, ending and rewards follow arXiv:2510.11062.

    Args:
        sandbox: Runs the programs; one with its own default limits if None.
        tool_prompt: System text of the tool agent; empty for none.
        reasoner_prompt: System text of the reasoner; empty for none.
    """

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        tool_prompt: str = "Write a Python program in a ```python block that solves the problem and prints the final "
        "answer, nothing else: a number or an expression. Only the standard library is there.",
        reasoner_prompt: str = "Solve the problem step by step. Another agent's program and what came of it may stand "
        r"below the problem; they can be wrong. Put the final answer in \boxed{}.",
    ) -> None:
        super().__init__(shots=0, tool_prompt=tool_prompt, reasoner_prompt=reasoner_prompt)
        self._sandbox = sandbox or Sandbox()

    def parse(self, agent: str, text: str) -> Action:
        r"""Runs the tool's program, so that an action always means the same; reads the reasoner's last ``\boxed{}``."""
        action = super().parse(agent, text)
        return Action(action.value, valid=True) if isinstance(action.value, Unjudged) else action

    def step(self, agent: str, action: Action) -> StepResult:
        """Adds the move to the history and rewards it, unless the sandbox failed.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        move = self._made(agent, action, Move)
        if not isinstance(move, Unjudged):
            return super().step(agent, action)
        if all(earlier.agent == agent for earlier in self._history):
            self._success = math.nan
        return StepResult(None, None, done=False, info={"sandbox_error": move.failure})

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """How the tool's programs are kept apart here."""
        return (self._sandbox.describe(),) if "tool" in agents else ()

    def _call(self, text: str) -> Move:
        program = read_program(text, None)
        if program.source is None:
            said = head(" ".join(text.split()), MAX_WORDS) or "?"
            return Move("tool", said, f"Tool: {head(program.fault, MAX_WORDS)}", None)
        said = program_block(head(program.source.strip("\n"), MAX_SAID))
        try:
            run = self._sandbox.run(program.source)
        except SandboxError as error:
            return Unjudged("tool", said, "", None, failure=str(error))
        value, outcome = self._outcome(run)
        return Move("tool", said, f"Tool:\n{said}\n{outcome}", value, told=f"Tool: {outcome}")

    def _outcome(self, run: Run) -> tuple[str | None, str]:
        """The value of a run, if any, and what came of it in words."""
        if run.stopped is not None:
            return None, f"stopped: too much {run.stopped}"
        if not run.ok:
            return None, f"failed: {head(_last_line(run.stderr), MAX_WORDS) or f'exit code {run.exit_code}'}"
        if may_be_cut(run, self._sandbox.limits.output_kb):
            return None, "printed too much"
        line = _last_line(run.stdout)
        if not line:
            return None, "printed nothing"
        if not readable(line):
            return None, f"printed no number: {head(line, MAX_WORDS)}"
        return line, f"printed {line}"


def _last_line(text: str) -> str:
    """The last one that is not empty, its spaces made single."""
    return next((" ".join(line.split()) for line in reversed(text.split("\n")) if line.strip()), "")
