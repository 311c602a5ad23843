r"""A tool agent writes arithmetic that is evaluated exactly, a reasoner answers in ``\boxed{}``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from atgrpo.envs.answers import JudgeError, equal, final_answer, is_scorable
from atgrpo.envs.arithmetic import ArithmeticSyntaxError, evaluate, milestones, to_text
from atgrpo.envs.contract import EnvError
from atgrpo.envs.guards import Guarded
from atgrpo.envs.shown import head
from atgrpo.types import Action, Message, Observation, Sample, StepResult

PENDING = "?"
r"""``\boxed{?}``: the reasoner says that there is no answer yet."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of one agent, in the words that later prompts use."""

    agent: str
    said: str
    """What it reads later as its own turn."""
    note: str
    """What the team reads later."""
    value: str | None
    """Its answer; None where there is none."""
    pending: bool = False
    """It chose to give none yet."""
    told: str = ""
    """What it reads later itself in place of ``note``, where that repeats what it said."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A solved problem. Its names are not among those of the data, so it never equals a sample."""

    prompt: str
    calls: tuple[str, ...]
    """One expression a turn; the last one's value is the answer."""


SINGLE_CALL = (
    Demonstration("Kim has 4 boxes with 6 apples each and 5 loose apples. How many apples in total?", ("4*6+5",)),
    Demonstration("Joe bakes 5 trays of 4 cookies and eats 8. How many cookies are left?", ("5*4-8",)),
    Demonstration("Amy had 21 coins, spent 7 and gave away 6. How many coins are left?", ("21-7-6",)),
)
TWO_CALLS = (
    Demonstration(
        "Kim has 4 boxes with 6 apples each and 5 loose apples, and eats 3. How many apples are left?",
        ("4*6+5", "29-3"),
    ),
    Demonstration(
        "Amy had 46 coins, spent 7, lost 6, lent 9 and gave away 4. How many coins are left?", ("46-7-6", "33-9-4")
    ),
    Demonstration(
        "Joe bakes 5 trays of 4 cookies, eats 3 and gives away 6. How many cookies are left?", ("5*4-3", "17-6")
    ),
)
"""Calls of two operations at most. The second call takes one or two: a model copies what it is shown."""


class MathTeam(Guarded[Sample]):
    r"""Tool and reasoner on one problem; either may also be the whole team.

    The episode is over once the reasoner's answer agrees with the tool's value, right or wrong; the sampler bounds the
    turns. ``success`` is whether the team's answer is right: the reasoner's latest once it has spoken (none if that
    turn held none), else the tool's latest value.

    ``team_reward`` is 1 if the acting agent's answer is right, else 0. ``local_reward`` is 1 for a right answer, 0 for
    a wrong one and -1 for none (the expression fails, no box); ``\boxed{?}`` ("not yet") earns 0. Where the judge
    crashes both are None and ``success`` is NaN.

    With ``max_operations`` and a sample whose ``meta`` has a gold ``expression``, the tool's local reward for a value
    is instead the progress it makes: the share of the gold expression's operations that its values have covered, minus
    what was covered before. Over an episode it adds up to 1 at most, however often a part is computed again.

    Args:
        max_operations: Operations allowed in one tool call; problems with more need several turns. A step's reward
            then does not say how good the step was (``step_rewards_complete`` is False).
        shots: Demonstrations in front of every prompt; the last ones of the list, at most 3.
        tool_prompt: System text of the tool agent; empty for none.
        reasoner_prompt: System text of the reasoner; empty for none.
    """

    roles = ("tool", "reasoner")

    def __init__(
        self,
        max_operations: int | None = None,
        shots: int = 3,
        tool_prompt: str = "Write one arithmetic expression for the problem.",
        reasoner_prompt: str = r"Answer in \boxed{}.",
    ) -> None:
        demonstrations = SINGLE_CALL if max_operations is None else TWO_CALLS
        if max_operations is not None and max_operations < 1:
            raise ValueError(f"max_operations got {max_operations}, expected at least 1 or None")
        if not 0 <= shots <= len(demonstrations):
            raise ValueError(f"shots got {shots}, expected 0 to {len(demonstrations)}")
        self.step_rewards_complete = max_operations is None
        self._max_operations = max_operations
        solved = [(d.prompt, _moves(d)) for d in demonstrations[len(demonstrations) - shots :]]
        tool, reasoner = _system(tool_prompt), _system(reasoner_prompt)
        self._preambles: dict[tuple[str, bool], tuple[Message, ...]] = {
            ("tool", False): (*tool, *(m for p, moves in solved for m in _demonstrate("tool", p, moves))),
            ("reasoner", False): (*reasoner, *(m for p, moves in solved for m in _demonstrate("reasoner", p, moves))),
            ("reasoner", True): (
                *reasoner,
                *(m for p, moves in solved for m in _demonstrate("reasoner", p, moves[-1:])),
            ),
        }
        self._history: tuple[Move, ...] = ()
        self._milestones: dict[Fraction, float] = {}
        self._covered = 0.0
        self._done = False
        self._success = 0.0

    def reset(self, sample: Sample) -> None:
        """Starts on ``sample``.

        Raises:
            ValueError: its answer cannot be judged.
        """
        if not is_scorable(sample.answer):
            raise EnvError(f"sample {sample.id!r} got answer {sample.answer!r}, expected a number or an expression")
        self._current, self._history, self._done, self._success = sample, (), False, 0.0
        self._milestones, self._covered = self._parts(sample), 0.0

    def _parts(self, sample: Sample) -> dict[Fraction, float]:
        expression = sample.meta.get("expression")
        if self._max_operations is None or not isinstance(expression, str):
            return {}
        try:
            return milestones(expression)
        except ArithmeticSyntaxError:  # a column of that name in somebody's data, with another meaning
            return {}

    def observe(self, agent: str) -> Observation:
        """System text, demonstrations, then the agent's own dialogue so far with what the team did in between."""
        self._check(agent)
        alone = agent == "reasoner" and all(move.agent == agent for move in self._history)
        dialogue = _dialogue(agent, self._current.prompt, self._history)
        return Observation(agent, (*self._preambles[agent, alone], *dialogue))

    def parse(self, agent: str, text: str) -> Action:
        r"""The tool's text must be one expression as a whole; the reasoner's last ``\boxed{}`` (or ``####``) counts."""
        self._check(agent)
        move = self._call(text) if agent == "tool" else _answer(text)
        return Action(move, move.value is not None or move.pending)

    def step(self, agent: str, action: Action) -> StepResult:
        """Adds the move to the history and rewards it.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        move = self._made(agent, action, Move)
        partner = next((m for m in reversed(self._history) if m.agent == "tool"), None)
        self._history = (*self._history, move)
        leads = agent == "reasoner" or all(m.agent == "tool" for m in self._history)
        try:
            right = move.value is not None and equal(move.value, self._current.answer)
            agreed = agent == "reasoner" and partner is not None and _agree(move, partner)
        except JudgeError as error:
            self._success = math.nan if leads else self._success
            return StepResult(None, None, done=False, info={"judge_error": str(error)})
        self._done = agreed
        if leads:
            self._success = float(right)
        return StepResult(float(right), self._local_reward(move, right), self._done)

    def _local_reward(self, move: Move, right: bool) -> float:
        if move.value is None:
            return 0.0 if move.pending else -1.0
        if move.agent != "tool" or not self._milestones:
            return float(right)
        before = self._covered
        self._covered = max(before, self._milestones.get(evaluate(move.value), 0.0))
        return self._covered - before

    @property
    def done(self) -> bool:
        """Tool and reasoner agree."""
        return self._done

    @property
    def success(self) -> float:
        """1 if the team's answer is right, else 0; NaN where the judge crashed on it."""
        return self._success

    def _call(self, text: str) -> Move:
        try:
            return _called(text.strip(), to_text(evaluate(text, max_operations=self._max_operations)))
        except ArithmeticSyntaxError as error:
            said = head(" ".join(text.split()), 40) or PENDING
            return Move("tool", said, f"Tool: {error}", None)


def _called(expression: str, value: str) -> Move:
    return Move("tool", expression, f"Tool: {expression} = {value}", value)


def _answered(value: str | None, *, pending: bool = False) -> Move:
    shown = PENDING if value is None else value
    return Move("reasoner", rf"\boxed{{{shown}}}", f"Reasoner: {shown}", value, pending)


def _answer(text: str) -> Move:
    answer = final_answer(text)
    if answer is None:
        return _answered(None)
    if answer.strip() == PENDING:
        return _answered(None, pending=True)
    return _answered(" ".join(answer.split()) if readable(answer) else None)


def readable(answer: str) -> bool:
    """Whether the judge can read an answer. So too where it crashes: the step asks again and leaves the reward out."""
    try:
        return is_scorable(answer)
    except JudgeError:
        return True


def _agree(answer: Move, call: Move) -> bool:
    return answer.value is not None and call.value is not None and equal(answer.value, call.value)


def _system(text: str) -> tuple[Message, ...]:
    return ({"role": "system", "content": text},) if text else ()


def _moves(demonstration: Demonstration) -> tuple[Move, ...]:
    """Tool and reasoner in turn; the reasoner waits until the last call."""
    moves: list[Move] = []
    for number, expression in enumerate(demonstration.calls, 1):
        value = to_text(evaluate(expression))
        last = number == len(demonstration.calls)
        moves += [_called(expression, value), _answered(value) if last else _answered(None, pending=True)]
    return tuple(moves)


def _demonstrate(agent: str, prompt: str, moves: Sequence[Move]) -> list[Message]:
    """The dialogue up to and with the agent's last move."""
    last = max(i for i, move in enumerate(moves) if move.agent == agent)
    return [*_dialogue(agent, prompt, moves[:last]), {"role": "assistant", "content": moves[last].said}]


def _dialogue(agent: str, prompt: str, moves: Sequence[Move]) -> list[Message]:
    """The agent's earlier turns and the message it answers now."""
    messages: list[Message] = []
    news: list[str] = []
    for move in moves:
        if move.agent == agent:
            messages += [_ask(agent, prompt, news, opening=not messages), {"role": "assistant", "content": move.said}]
            news = []
        if move.agent != agent:
            news.append(move.note)
        elif agent == "tool":
            news.append(move.told or move.note)
    return [*messages, _ask(agent, prompt, news, opening=not messages)]


def _ask(agent: str, prompt: str, news: Sequence[str], *, opening: bool) -> Message:
    # Small models go on best when the problem stands last for the tool, and the tool's line last for the reasoner.
    if agent == "tool":
        return {"role": "user", "content": "\n".join([*news, prompt])}
    return {"role": "user", "content": "\n".join([prompt, *news] if opening or not news else news)}
