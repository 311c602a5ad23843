"""Python functions as the tools of an assistant, described to it by their type hints and docstrings."""

from __future__ import annotations

import copy
import inspect
import json
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

from atgrpo.envs.answers import JudgeError, equal, final_answer, is_scorable
from atgrpo.envs.contract import EnvError, check_paid
from atgrpo.envs.guards import Guarded, not_made
from atgrpo.envs.own import Spoken, dialogue, load_function
from atgrpo.envs.reward_functions import RewardFunctions
from atgrpo.envs.shown import excerpt
from atgrpo.types import Action, Observation, Sample, StepResult

FORMAT = (
    "You may call these tools, one call a turn:\n<tools>\n{schemas}\n</tools>\n"
    'A call is <tool_call>{{"name": NAME, "arguments": {{...}}}}</tool_call>; its result comes in <tool_response>.'
)
SPOKEN = 500
"""Characters of a response that later prompts show, at most."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that can be carried out."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Final:
    """An answer to the problem."""

    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A response that is neither, and what the model is told about it."""

    said: str
    complaint: str


class FunctionTools(Guarded[Sample]):
    r"""One ``assistant`` that calls functions until it answers.

    A response with ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` is a call; its result stands in the
    next prompt. Any other response is the answer and ends the episode: ``\boxed{}`` judged by ``answers.equal``, or
    with ``judge`` the whole text by that function. What a function raises is a result, too. A call that names no tool,
    or whose arguments do not fit the type hints, is an invalid action; the model reads why.

    ``team_reward`` is the answer's reward, ``unanswered`` until there is one. ``local_reward`` is 1
    for a right answer, 0 for a call or a wrong answer, and -1 for an invalid action; with ``judge`` it is 0 for every
    valid one. A call alone earns nothing (``step_rewards_complete`` is False): use ``credit: continuation``. Where the
    judge fails both are None and ``success`` is NaN.

    The functions run in this process, with arguments that a model chose: they must be harmless, quick and depend on
    nothing but these.

    Args:
        tools: Dotted paths of functions with type hints and a Google docstring.
        judge: Dotted path of a TRL-style reward function; None: the answer's value.
        prompt: System text in front of the tools' description.
        longest: Characters of a result, at most.
        unanswered: What an episode without an answer is worth; the least that the judge pays.
    """

    roles = ("assistant",)
    step_rewards_complete = False

    def __init__(
        self,
        tools: Sequence[str],
        judge: str | None = None,
        prompt: str = r"Solve the problem. Put the answer in \boxed{}.",
        longest: int = 500,
        unanswered: float = 0.0,
    ) -> None:
        if longest < 1:
            raise ValueError(f"longest got {longest}, expected at least 1")
        self._tools = {tool.name: tool for tool in map(_tool, tools)}
        if not tools or len(self._tools) < len(tools):
            raise ValueError(f"tools got {list(tools)}, expected functions of different names, at least one")
        self._judge = None if judge is None else RewardFunctions([judge])
        schemas = "\n".join(json.dumps(tool.schema) for tool in self._tools.values())
        self._system = "\n\n".join(filter(None, (prompt, FORMAT.format(schemas=schemas))))
        self._longest, self._unanswered = longest, unanswered
        self._spoken: tuple[Spoken, ...] = ()
        self._level = unanswered
        self._success = 0.0
        self._done = False

    def reset(self, sample: Sample) -> None:
        """Starts on ``sample``.

        Raises:
            ValueError: its answer cannot be judged, or it lacks a column that the judge needs.
        """
        if self._judge is not None:
            self._judge.check(sample)
        elif not is_scorable(sample.answer):
            raise EnvError(
                f"sample {sample.id!r} got answer {sample.answer!r}, expected a number or an expression (or set judge)"
            )
        self._current, self._spoken, self._level, self._success, self._done = sample, (), self._unanswered, 0.0, False

    def observe(self, agent: str) -> Observation:
        """The tools, the problem, then calls and results so far."""
        self._check(agent)
        return Observation(agent, dialogue(agent, self._system, self._current.prompt, self._spoken))

    def parse(self, agent: str, text: str) -> Action:
        """A call, else an answer, else what is wrong with it."""
        self._check(agent)
        read = self._read(text)
        return Action(read, not isinstance(read, Refused))

    def _read(self, text: str) -> Call | Final | Refused:
        calls = re.findall(r"<tool_call>((?:(?!<tool_call>).)*?)</tool_call>", text, re.DOTALL)
        if len(calls) > 1:
            return Refused(text, f"got {len(calls)} calls, expected one")
        if not calls and "<tool_call>" in text:
            return Refused(text, "the call has no </tool_call>")
        if calls:
            try:
                return _read_call(calls[0], self._tools)
            except ValueError as error:
                return Refused(text, str(error))
        if self._judge is not None:
            return Final(text) if text.strip() else Refused(text, "nothing was said")
        answer = final_answer(text)
        if answer is None:
            return Refused(text, r"expected a tool call, or the answer in \boxed{}")
        try:
            return Final(answer) if is_scorable(answer) else Refused(text, "the answer is no number or expression")
        except JudgeError:
            return Final(answer)  # the step asks the judge again and leaves the reward out

    def step(self, agent: str, action: Action) -> StepResult:
        """Carries out the call, or judges the answer.

        Raises:
            ValueError: the episode is over, or the action is none that ``parse`` made.
        """
        self._check_open(agent)
        match action.value:
            case Call(name, arguments):
                said = json.dumps({"name": name, "arguments": arguments})
                self._add(f"<tool_call>{said}</tool_call>", self._tools[name].call(arguments))
                return StepResult(self._level, 0.0, done=False)
            case Refused(said, complaint):
                self._add(said, f"error: {complaint}")
                return StepResult(self._level, -1.0, done=False)
            case Final(text):
                return self._finish(text)
        raise not_made(agent, action.value)

    def _add(self, said: str, result: str) -> None:
        note = f"<tool_response>\n{excerpt(result, self._longest)}\n</tool_response>"
        own = excerpt(said, SPOKEN) or "?"
        self._spoken = (*self._spoken, Spoken("assistant", own, ""), Spoken("tool", "", note))

    def _finish(self, text: str) -> StepResult:
        self._done = True
        try:
            if self._judge is None:
                right = float(equal(text, self._current.answer))
                self._level = self._success = right
                return StepResult(right, right, done=True)
            score = self._judge.score(self._current, text)
            total, error = score.total, score.error or "the judge gave no reward"
        except JudgeError as failure:
            total, error = None, str(failure)
        if total is None:
            self._success = math.nan
            return StepResult(None, None, done=True, info={"judge_error": error})
        check_paid("judge", total, self._unanswered)
        self._level, self._success = total, min(1.0, max(0.0, total))
        return StepResult(total, 0.0, done=True)

    @property
    def done(self) -> bool:
        """An answer was given."""
        return self._done

    @property
    def success(self) -> float:
        """The answer's reward clipped to 0..1; 0 before there is one, NaN where the judge failed."""
        return self._success


# ---- tools -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with its description and the types of its arguments."""

    function: Callable[..., Any]
    schema: Mapping[str, Any]
    signature: inspect.Signature
    hints: Mapping[str, Any]

    @property
    def name(self) -> str:
        """As the model calls it."""
        return self.function.__name__

    def call(self, arguments: Mapping[str, Any]) -> str:
        """The result as text: a string as it is, else JSON where that is possible; what it raises is a result too."""
        try:
            # A copy: the fork of a sibling holds the same arguments.
            result = self.function(**copy.deepcopy(dict(arguments)))
            return result if isinstance(result, str) else json.dumps(result, default=str)
        except (Exception, SystemExit) as error:
            return f"error: {type(error).__name__}: {error}"


def _tool(path: str) -> Tool:
    from transformers.utils import get_json_schema

    function = load_function(path, "tools")
    try:
        schema = get_json_schema(function)
        hints = typing.get_type_hints(function)
    except Exception as error:  # it raises types of its own, for hints as for docstrings
        raise ValueError(f"tools got {path!r}, expected type hints and a Google docstring ({error})") from error
    signature = inspect.signature(function)
    if any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in signature.parameters.values()):
        raise ValueError(f"tools got {path!r}, expected arguments with names only")
    return Tool(function, schema, signature, hints)


def _read_call(text: str, tools: Mapping[str, Tool]) -> Call:
    try:
        call = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError('the call is no JSON, expected {"name": ..., "arguments": {...}}') from None
    if not isinstance(call, dict) or set(call) != {"name", "arguments"} or not isinstance(call["arguments"], dict):
        raise ValueError('the call got other fields, expected {"name": ..., "arguments": {...}}')
    tool = tools.get(call["name"]) if isinstance(call["name"], str) else None
    if tool is None:
        raise ValueError(f"there is no such tool, expected one of {', '.join(tools)}")
    arguments = call["arguments"]
    try:
        tool.signature.bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{tool.name}: {error}") from None
    return Call(tool.name, {key: _typed(tool, key, value) for key, value in arguments.items()})


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _typed(tool: Tool, key: str, value: Any) -> Any:
    """The value as the hint wants it: JSON has no tuples, and true is no number."""
    hint = tool.hints[key]
    forms = (value, tuple(value)) if isinstance(value, list) else (value,)
    for form in forms:
        try:
            check_type(form, hint, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
        except TypeCheckError:
            continue
        if isinstance(form, bool) and hint in (int, float):
            continue
        return form
    expected = tool.schema["function"]["parameters"]["properties"][key].get("type", str(hint))
    raise ValueError(f"{tool.name}: {key} got {type(value).__name__}, expected {expected}")
