r"""Teams that solve a puzzle on a grid: one proposes, one decides. What every such task shares."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from atgrpo.envs.code_judge import may_be_cut
from atgrpo.envs.contract import EnvError
from atgrpo.envs.grids import Outcome, Puzzle
from atgrpo.envs.guards import Guarded, expect_one
from atgrpo.sandbox.blocks import python_block
from atgrpo.sandbox.runner import Sandbox, SandboxError
from atgrpo.types import Action, Message, Observation, Sample, StepResult

ILLEGAL = 0.02
"""Price of a plan with an illegal move. A step forward on a way of up to 48 earns no less, so that setting out pays."""
PROGRESS = 1 - 2 * ILLEGAL
"""Worth of the whole way. Even a plan that loses all progress and has an illegal move beats an unreadable one."""
UNREADABLE = -1.0
MAX_SHOWN = 60
"""Most characters of an agent's plan, or of its program's error, that others read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as the team understood it."""

    agent: str
    plan: str | None
    """None where nothing could be read."""
    fault: str = ""
    """Why there is no plan."""
    failure: str | None = None
    """The sandbox itself failed: neither right nor wrong."""


def role_texts(rules: str, answer: str, example: str, program: str) -> dict[str, str]:
    """System texts for large models: the rules, then what the role is to do.

    Args:
        rules: How the puzzle is written and what is allowed.
        answer: What goes into the box.
        example: One that is not the answer.
        program: What a program prints.
    """
    box = rf"Put {answer} in \boxed{{}}, for example \boxed{{{example}}}."
    final = f"Proposals of other agents may stand below the puzzle with what they would do. They can be wrong. {box}"
    return {
        "tool": f"{rules} Write a Python program in a ```python block that solves the puzzle: it reads the puzzle from "
        f"standard input, as it stands here, and prints {program}, nothing else.",
        "planner": f"{rules} You decide. {final}",
        "proposer": f"{rules} Propose a solution to the agent that decides. {box}",
        "critic": f"{rules} Check the proposal, correct it if it is wrong, and decide. {final}",
    }


class PuzzleTeam(Guarded[Puzzle[Any]]):
    r"""A proposer (or a tool, whose program proposes) and an agent that decides; any of them may be the whole team.

    ``planner`` and ``critic`` decide: their plan is applied to the state, up to its first illegal move. The others'
    plans change nothing; whoever acts next reads them together with what they would do. The episode is over once the
    puzzle is solved; the sampler bounds the turns, and running out of them is no success.

    ``team_reward`` is 1 where the state is solved, else 0. With the potential ``p`` of ``Puzzle.progress``::

        local_reward = PROGRESS * (p(s') - p(s)) - ILLEGAL * [the plan has an illegal move]

    and -1 for an unreadable or empty plan. For an agent that decides, s and s' are the states before and after. For
    the others s' is where its plan would lead and s where its last one would have led (the start, for the first). So
    an agent's rewards add up to less than 1 over an episode, and going back and forth earns what standing still does
    (Ng et al., 1999, "Policy invariance under reward transformations"). Where the sandbox fails, both are None.

    A sample's prompt is the puzzle; its answer is not used.

    Args:
        decider: The one role whose plans are applied instead of the planner's and the critic's: ``proposer`` or
            ``tool`` for a baseline of one agent.
        horizon: Moves of a plan that are read; the rest waits for the next turn. None for all. Only where plans are
            moves.
        tool_prompt: System text of the tool; None is the task's own, an empty text is none.
        planner_prompt: The planner's.
        proposer_prompt: The proposer's.
        critic_prompt: The critic's.
        sandbox: Runs the tool's programs; one with its own default limits if None.
    """

    roles = ("tool", "planner", "proposer", "critic")
    step_rewards_complete = True
    texts: ClassVar[Mapping[str, str]]
    """Role -> the task's own system text."""
    by_moves: ClassVar[bool] = True
    """A plan is a row of moves, of which the first ones mean something alone."""

    def __init__(
        self,
        decider: str | None = None,
        horizon: int | None = None,
        tool_prompt: str | None = None,
        planner_prompt: str | None = None,
        proposer_prompt: str | None = None,
        critic_prompt: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        if decider is not None and decider not in self.roles:
            raise ValueError(f"decider got {decider!r}, expected one of {self.roles} or None")
        if horizon is not None and (horizon < 1 or not self.by_moves):
            raise ValueError(f"horizon got {horizon}, expected None{' or at least 1' if self.by_moves else ''}")
        self._horizon = horizon
        self._deciders = ("planner", "critic") if decider is None else (decider,)
        prompts = (tool_prompt, planner_prompt, proposer_prompt, critic_prompt)
        self._systems = {
            role: self.texts[role] if text is None else text for role, text in zip(self.roles, prompts, strict=True)
        }
        self._sandbox = sandbox or Sandbox()
        self._state: Any = None
        self._proposed: Mapping[str, float] = {}
        self._notes: Mapping[str, str] = {}
        self._unjudged = False

    @staticmethod
    @abstractmethod
    def load(text: str) -> Puzzle[Any]:
        """The puzzle in a prompt.

        Raises:
            ValueError: it is none, or it cannot be solved.
        """

    def reset(self, sample: Sample) -> None:
        """Starts on ``sample``.

        Raises:
            ValueError: its prompt is no puzzle that can be solved.
        """
        try:
            self._current = self.load(sample.prompt)
        except ValueError as error:
            raise EnvError(f"sample {sample.id!r}: {error}") from None
        self._state, self._proposed, self._notes, self._unjudged = self._current.start, {}, {}, False

    def observe(self, agent: str) -> Observation:
        self._check(agent)
        system: list[Message] = [{"role": "system", "content": t} for t in (self._systems[agent],) if t]
        puzzle = self._current
        parts = [puzzle.show(self._state), puzzle.standing(self._state), *self._notes.values()]
        return Observation(agent, (*system, {"role": "user", "content": "\n".join(part for part in parts if part)}))

    def parse(self, agent: str, text: str) -> Action:
        """Reads the plan; the tool's program is run here, so that an action always means the same."""
        self._check(agent)
        if agent == "tool":
            reply = self._run(text)
        else:
            plan = self._read(text)
            reply = Reply(agent, plan, "" if plan else "unreadable")
        return Action(reply, reply.plan is not None or reply.failure is not None)

    def step(self, agent: str, action: Action) -> StepResult:
        """Applies the plan of an agent that decides, notes that of another, and rewards it.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        reply = self._made(agent, action, Reply)
        decides = agent in self._deciders
        if reply.failure is not None:
            self._unjudged = self._unjudged or decides
            return StepResult(None, None, done=False, info={"sandbox_error": reply.failure})
        self._unjudged = self._unjudged and not decides
        outcome = None if reply.plan is None else self._current.apply(self._state, reply.plan)
        # Where a decided plan led is what everybody sees next; only its fault needs words.
        others = {} if decides else self._notes
        words = _describe(reply, outcome, told=not decides)
        self._notes = {**others, agent: f"{agent.capitalize()}: {words}"} if words else others
        local = UNREADABLE if outcome is None else self._local_reward(agent, outcome)
        if outcome is not None and decides:
            self._state = outcome.state
        info = {} if outcome is None or outcome.illegal is None else {"illegal": outcome.illegal}
        return StepResult(float(self.done), local, self.done, info)

    def _local_reward(self, agent: str, outcome: Outcome[Any]) -> float:
        after = self._current.progress(outcome.state)
        if agent in self._deciders:
            before = self._current.progress(self._state)
        else:
            before = self._proposed.get(agent, 0.0)
            self._proposed = {**self._proposed, agent: after}
        return PROGRESS * (after - before) - ILLEGAL * (outcome.illegal is not None)

    @property
    def done(self) -> bool:
        """The puzzle is solved."""
        return self._current.progress(self._state) == 1.0

    @property
    def success(self) -> float:
        """1 if the puzzle is solved, else 0; NaN where the sandbox failed on the plan that decides."""
        return math.nan if self._unjudged else float(self.done)

    def demonstrate(self, agent: str) -> str | None:
        """A shortest solution from here, up to the horizon; None for the tool, or where there is none."""
        self._check(agent)
        plan = None if agent == "tool" or self.done else self._current.solution(self._state)
        return None if plan is None else plan[: self._horizon]

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """How the tool's programs are kept apart here.

        Raises:
            ValueError: nobody decides, so that no plan would ever be applied.
        """
        expect_one(agents, self._deciders, f"whose plan is applied (or env.decider={next(iter(agents), 'NAME')})")
        return (self._sandbox.describe(),) if "tool" in agents else ()

    def _run(self, text: str) -> Reply:
        """The tool's program in the sandbox; its output is read like a response."""
        program = python_block(text)
        if program is None:
            return Reply("tool", None, "no program")
        try:
            run = self._sandbox.run(program, self._current.show(self._state))
        except SandboxError as error:
            return Reply("tool", None, failure=str(error))
        if run.stopped is not None:
            return Reply("tool", None, f"program stopped, too much {run.stopped}")
        if not run.ok:
            return Reply("tool", None, f"program failed: {_clean(run.stderr.strip().rpartition(chr(10))[2])}")
        if may_be_cut(run, self._sandbox.limits.output_kb):
            return Reply("tool", None, "program printed too much")
        plan = self._read(run.stdout)
        return Reply("tool", plan, "" if plan else f"program printed no plan: {_clean(run.stdout)}")

    def _read(self, text: str) -> str | None:
        plan = self._current.read(text)
        return None if plan is None else plan[: self._horizon]


def _describe(reply: Reply, outcome: Outcome[Any] | None, *, told: bool) -> str:
    """A reply in words; ``told`` adds where its plan leads. Empty where there is nothing to say."""
    if outcome is None or reply.plan is None:
        return reply.fault
    said = reply.plan if len(reply.plan) <= MAX_SHOWN else f"{reply.plan[:MAX_SHOWN]}..."
    words = ", ".join(part for part in (outcome.illegal, outcome.report if told else "") if part)
    return f"{said} {words}" if words else ""


def _clean(text: str) -> str:
    """Text of a program for others to read: cut, and unable to spell a control token."""
    return re.sub(r"[^A-Za-z0-9 .,:_'=()]", "?", " ".join(text.split())[:MAX_SHOWN])
