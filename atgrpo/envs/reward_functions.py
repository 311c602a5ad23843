"""Reward functions as TRL's GRPO trainer takes them, for one role or a sequence of roles."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from atgrpo.envs.contract import EnvError, check_paid
from atgrpo.envs.guards import Guarded
from atgrpo.envs.own import Spoken, dialogue, load_function, warn_once
from atgrpo.envs.shown import excerpt
from atgrpo.types import Action, Observation, Sample, StepResult

ALWAYS = frozenset({"prompts", "completions"})
NOT_KNOWN = frozenset({"completion_ids", "completions_ids", "trainer_state", "environments"})
"""What TRL passes too. An environment has texts only, and knows no trainer."""


@dataclass(frozen=True, slots=True)
class Score:
    """What the functions say of one text."""

    total: float | None
    """Weighted sum over the functions that gave a number; None: none did, or one crashed."""
    parts: Mapping[str, float | None]
    """Function -> what it gave."""
    error: str = ""
    """What a crashed function raised."""


class RewardFunctions:
    """Functions ``reward(completions, prompts=..., **columns) -> list[float | None]``, called with lists of one.

    ``total = sum_i w_i r_i`` over the functions that apply: one that returns None (or NaN) does not, as in TRL
    (huggingface.co/docs/trl/grpo_trainer, "Using a custom reward function"). The columns are those of ``sample.meta``
    and ``answer``; a function gets copies of those that it names, or of all if it takes ``**kwargs``.

    Args:
        paths: Dotted paths of the functions.
        weights: One for each; 1 by default.
        conversational: Prompts and completions are lists of chat messages instead of strings.

    Raises:
        ValueError: a function that cannot be found or called this way, or weights that do not fit.
    """

    def __init__(
        self, paths: Sequence[str], weights: Sequence[float] | None = None, conversational: bool = False
    ) -> None:
        if not paths:
            raise ValueError("rewards got none, expected at least one function")
        if weights is not None and len(weights) != len(paths):
            raise ValueError(f"weights got {len(weights)}, expected one for each of {len(paths)} rewards")
        self._weights = tuple(weights) if weights is not None else (1.0,) * len(paths)
        self._functions: dict[str, Callable[..., Any]] = {path: load_function(path, "rewards") for path in paths}
        if len(self._functions) < len(paths):
            raise ValueError(f"rewards got {list(paths)}, expected each function once")
        self._wants = {path: _wants(path, function) for path, function in self._functions.items()}
        self._conversational = conversational

    def check(self, sample: Sample) -> None:
        """Refuses a sample that lacks a column some function needs.

        Raises:
            EnvError: it does.
        """
        columns = {*sample.meta, "answer"}
        for path, wanted in self._wants.items():
            if lacking := sorted(wanted.needed - columns):
                raise EnvError(
                    f"reward {path} needs the column {lacking[0]!r}, sample {sample.id!r} has {sorted(columns)}"
                )

    def score(self, sample: Sample, text: str) -> Score:
        """Scores ``text`` as the answer to ``sample``. A function that raises makes the whole score missing.

        Raises:
            ValueError: a function returned something else than a list of one number or None.
        """
        prompt: Any = [{"role": "user", "content": sample.prompt}] if self._conversational else sample.prompt
        completion: Any = [{"role": "assistant", "content": text}] if self._conversational else text
        columns = {"answer": sample.answer, **sample.meta, "prompts": prompt, "completions": completion}
        parts: dict[str, float | None] = {}
        for path, function in self._functions.items():
            wanted = self._wants[path]
            named = {key: value for key, value in columns.items() if wanted.everything or key in wanted.named}
            # Copies: a function may change what it is given, which the sample's other candidates share.
            given = {key: [copy.deepcopy(value)] for key, value in named.items()}
            try:
                returned = function(**given)
            except Exception as error:
                complaint = f"{type(error).__name__}: {error}"
                warn_once(path, complaint)
                return Score(None, {**parts, path: None}, complaint)
            parts[path] = _single(path, returned)
        known = [w * r for w, r in zip(self._weights, parts.values(), strict=True) if r is not None]
        return Score(sum(known) if known else None, parts)


@dataclass(frozen=True, slots=True)
class _Wanted:
    named: frozenset[str]
    needed: frozenset[str]
    everything: bool


def _wants(path: str, function: Callable[..., Any]) -> _Wanted:
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = frozenset(p.name for p in named if p.default is p.empty) - ALWAYS
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        raise ValueError(f"rewards got {path!r}, expected a function that is called by keywords")
    if unknown := sorted(needed & NOT_KNOWN):
        raise ValueError(f"rewards got {path!r}, which needs {unknown[0]!r}; expected one that judges texts")
    return _Wanted(frozenset(p.name for p in named), needed, any(p.kind is p.VAR_KEYWORD for p in parameters))


def _single(path: str, returned: Any) -> float | None:
    """The one reward in what a function returned."""
    try:
        (reward,) = returned
        value = None if reward is None else float(reward)
    except (TypeError, ValueError):
        raise EnvError(f"reward {path} returned {returned!r}, expected a list of one number or None") from None
    return value if value is None or math.isfinite(value) else None


def _clipped(total: float) -> float:
    return min(1.0, max(0.0, total))


class RewardTeam(Guarded[Sample]):
    """Roles that write one after the other, each seeing the texts before its own; the last one's text is the answer.

    ``team_reward`` is the functions' weighted sum for the team's answer, ``unanswered`` before there is one. An earlier
    role's step does not change it, so with several roles a step says nothing about how good it was
    (``step_rewards_complete`` is False; ``credit: continuation`` lets each role have what its text led to).
    ``local_reward`` is 0, and -1 for an empty response. Where no function gives a number, or one crashes, both are
    None and ``success`` is NaN. Evaluating only earlier roles (``--agents``) has no answer: success 0.

    Args:
        rewards: Dotted paths of TRL-style functions; see ``RewardFunctions``.
        weights: One for each function; 1 by default.
        roles: In turn order.
        prompts: Role -> system text; a role without one gets no system message.
        conversational: The functions expect chat messages instead of strings.
        success_at: ``success`` is 1 from this reward on, else 0, and reaching it ends the episode. None: ``success`` is
            the reward clipped to 0..1, and the sampler's ``turns`` end the episode.
        shown: Characters of a text that later prompts show, at most.
        unanswered: What an episode of several roles is worth that ends before the last one has answered (a text too
            long for the next prompt); the least that the functions pay.
    """

    def __init__(
        self,
        rewards: Sequence[str],
        weights: Sequence[float] | None = None,
        roles: Sequence[str] = ("writer",),
        prompts: Mapping[str, str] = MappingProxyType({}),
        conversational: bool = False,
        success_at: float | None = None,
        shown: int = 1000,
        unanswered: float = 0.0,
    ) -> None:
        if not roles or len(set(roles)) < len(roles):
            raise ValueError(f"roles got {list(roles)}, expected different names, at least one")
        if strangers := sorted(set(prompts) - set(roles)):
            raise ValueError(f"prompts got {strangers[0]!r}, expected some of {list(roles)}")
        if shown < 1:
            raise ValueError(f"shown got {shown}, expected at least 1")
        self.roles = tuple(roles)  # type: ignore[misc]  # the recipe's, not the class's
        self.step_rewards_complete = len(roles) == 1
        self._rewards = RewardFunctions(rewards, weights, conversational)
        self._prompts, self._success_at, self._limit = prompts, success_at, shown
        self._unanswered = unanswered
        self._spoken: tuple[Spoken, ...] = ()
        self._level: float | None = unanswered
        self._answered = False

    def reset(self, sample: Sample) -> None:
        """Starts on ``sample``.

        Raises:
            ValueError: it lacks a column that a function needs.
        """
        self._rewards.check(sample)
        self._current, self._spoken, self._level, self._answered = sample, (), self._unanswered, False

    def observe(self, agent: str) -> Observation:
        """System text, then the agent's own turns with what the others wrote in between."""
        self._check(agent)
        return Observation(agent, dialogue(agent, self._prompts.get(agent, ""), self._current.prompt, self._spoken))

    def parse(self, agent: str, text: str) -> Action:
        """Any text counts; an empty one is invalid."""
        self._check(agent)
        return Action(text, bool(text.strip()))

    def step(self, agent: str, action: Action) -> StepResult:
        """Adds the text, and scores it if it is the team's answer.

        Raises:
            ValueError: the episode is over, or a function returned no list of one reward.
        """
        self._check_open(agent)
        text = excerpt(action.value, self._limit)
        self._spoken = (*self._spoken, Spoken(agent, text, f"{agent}: {text}"))
        local = 0.0 if action.valid else -1.0
        if agent != self.roles[-1]:
            return StepResult(self._level, local, done=False)
        score = self._rewards.score(self._current, action.value)
        if len(self.roles) > 1:
            check_paid("rewards", score.total, self._unanswered)
        self._level, self._answered = score.total, True
        info = {"rewards": score.parts, **({"judge_error": score.error} if score.error else {})}
        return StepResult(score.total, None if score.total is None else local, self.done, info)

    @property
    def done(self) -> bool:
        """``success_at`` is reached."""
        return self._success_at is not None and self._answered and self.success == 1.0

    @property
    def success(self) -> float:
        """Of the latest answer; 0 before there is one, NaN where it could not be scored."""
        if not self._answered:
            return 0.0
        if self._level is None:
            return math.nan
        return _clipped(self._level) if self._success_at is None else float(self._level >= self._success_at)
