r"""Any reasoning-gym task for two: a proposer answers, a verifier sees the answer and gives the final one."""

from __future__ import annotations

import ast
import copy
import functools
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from atgrpo.envs.answers import last_boxed
from atgrpo.envs.contract import EnvError
from atgrpo.envs.guards import Guarded
from atgrpo.envs.own import Spoken, dialogue, warn_once
from atgrpo.envs.shown import excerpt
from atgrpo.extras import optional
from atgrpo.types import Action, Observation, Sample, StepResult

LONGEST = 2000
"""Characters of an answer; nothing longer is read."""
PYTHON = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Tasks whose scorer evaluates the answer as Python: it would run what the model wrote."""
SYMPY = frozenset(
    {
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
"""Tasks whose scorer has sympy read the answer, which evaluates it as Python too."""


Scorer = Callable[..., float]
"""Called with an answer and an entry: question, gold answer and metadata."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one agent answered; None where nothing could be read."""

    agent: str
    text: str | None


class ReasoningGymTeam(Guarded[Sample]):
    r"""Proposer and verifier on one problem, judged by the task's own ``score_answer``; either may also play alone.

    An answer stands in ``<answer>``, in ``\boxed{}`` or on the last line. The episode is over once the verifier's
    answer is the proposer's, right or wrong; the sampler bounds the turns. ``team_reward`` is the score (0..1, partial
    scores as the task gives them) of the acting agent's answer; ``local_reward`` the same, and -1 where there is no
    answer. ``success`` is whether the team's answer has the full score: the verifier's latest once it has spoken, else
    the proposer's. Where the scorer crashes on the gold answer, too, both rewards are None and ``success`` is NaN; see
    ``judged``.

    Args:
        proposer_prompt: System text of the proposer; empty for none.
        verifier_prompt: System text of the verifier; empty for none.
        limit: Characters of an answer that later prompts show, at most.
    """

    roles = ("proposer", "verifier")
    step_rewards_complete = True

    def __init__(
        self,
        proposer_prompt: str = "Answer the question. Put the answer in <answer></answer>.",
        verifier_prompt: str = "Check the proposed answer. Put the right one in <answer></answer>.",
        limit: int = 500,
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit got {limit}, expected at least 1")
        self._systems = {"proposer": proposer_prompt, "verifier": verifier_prompt}
        self._limit = limit
        self._score: Scorer  # comes with the sample
        self._spoken: tuple[Spoken, ...] = ()
        self._proposed: str | None = None
        self._done = False
        self._success = 0.0

    def reset(self, sample: Sample) -> None:
        """Starts on ``sample``.

        Raises:
            ValueError: it is not of ``data.reasoning_gym``.
        """
        if "reasoning_gym" not in sample.meta:
            raise EnvError(f"sample {sample.id!r} is of no reasoning-gym task, expected data=reasoning_gym")
        self._current, self._score = sample, scorer(sample)
        self._spoken, self._proposed, self._done, self._success = (), None, False, 0.0

    def observe(self, agent: str) -> Observation:
        """System text, the question, and what the other one has answered since."""
        self._check(agent)
        return Observation(agent, dialogue(agent, self._systems[agent], self._current.prompt, self._spoken))

    def parse(self, agent: str, text: str) -> Action:
        r"""Reads the last ``<answer>``, else the last ``\boxed{}``, else the last line."""
        self._check(agent)
        answer = read_answer(text)
        return Action(Answer(agent, answer), answer is not None)

    def step(self, agent: str, action: Action) -> StepResult:
        """Notes the answer and scores it.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        answer = self._made(agent, action, Answer)
        leads = agent == "verifier" or all(part.agent == "proposer" for part in self._spoken)
        text = "?" if answer.text is None else excerpt(answer.text, self._limit)
        note = f"Proposed answer: {text}" if agent == "proposer" else f"The verifier's answer: {text}"
        self._spoken = (*self._spoken, Spoken(agent, f"<answer>{text}</answer>", note))
        try:
            score = 0.0 if answer.text is None else judged(self._score, self._current, answer.text)
        except Exception as error:  # the scorers are another project's, and raise what they like
            complaint = f"{type(error).__name__}: {error}"
            warn_once(f"the scorer of {self._current.meta['reasoning_gym']['task']}", complaint)
            self._success = math.nan if leads else self._success
            return StepResult(None, None, done=False, info={"judge_error": complaint})
        if agent == "proposer":
            self._proposed = answer.text
        else:
            self._done = answer.text is not None and answer.text == self._proposed
        if leads:
            self._success = float(score == 1.0)
        return StepResult(score, -1.0 if answer.text is None else score, self._done)

    def demonstrate(self, agent: str) -> str | None:
        """The gold answer; None where the task has none that can be read."""
        self._check(agent)
        gold = self._current.meta["reasoning_gym"]["answer"]
        response = f"<answer>{gold}</answer>"
        return response if isinstance(gold, str) and read_answer(response) == gold.strip() else None

    @property
    def done(self) -> bool:
        """Proposer and verifier agree."""
        return self._done

    @property
    def success(self) -> float:
        """1 if the team's answer has the full score, else 0; NaN where the scorer crashed on it."""
        return self._success


def scorer(sample: Sample) -> Scorer:
    """The ``score_answer`` of a sample's task with its settings: some scorers look at them."""
    origin = sample.meta["reasoning_gym"]
    return _scorer(origin["task"], json.dumps(origin["settings"], sort_keys=True))


@functools.lru_cache(maxsize=16)
def _scorer(task: str, settings: str) -> Scorer:
    score: Scorer = optional("reasoning_gym").create_dataset(task, size=1, seed=0, **json.loads(settings)).score_answer
    return score


def judged(score: Scorer, sample: Sample, answer: str) -> float:
    """What ``score`` says of an answer to a sample of ``data.reasoning_gym``, clipped to 0..1.

    0 without asking it for an answer with NaN or infinity that the gold answer has not (comparing with these comes out
    as any scorer's luck), and for one that is not harmless where the scorer evaluates it (see ``is_harmless``). 0, too,
    for an answer that the scorer crashes on, if it takes the gold one: else a crash would spare the penalty.

    Raises:
        Exception: whatever the scorer raises on the gold answer, or ValueError if that has no finite score.
    """
    task, gold = sample.meta["reasoning_gym"]["task"], sample.meta["reasoning_gym"]["answer"]
    refused = not is_harmless(task, answer) or (not is_finite(answer) and is_finite(str(gold)))
    if answer != gold and refused:
        return 0.0
    try:
        return _asked(score, sample, answer)
    except Exception:  # the scorers are another project's, and raise what they like
        _asked(score, sample, gold)
        return 0.0


def _asked(score: Scorer, sample: Sample, answer: str | None) -> float:
    gold = sample.meta["reasoning_gym"]["answer"]
    metadata = {key: value for key, value in sample.meta.items() if key != "reasoning_gym"}
    # A copy, as a scorer may change what it is given.
    said = float(score(answer, copy.deepcopy({"question": sample.prompt, "answer": gold, "metadata": metadata})))
    if not math.isfinite(said):
        raise ValueError(f"score got {said}, expected a finite number")
    return min(1.0, max(0.0, said))


def read_answer(text: str) -> str | None:
    r"""The last ``<answer>``, else the last ``\boxed{}``, else the last line; None where that is empty or too long."""
    tagged = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", text, re.DOTALL)
    boxed = None if tagged else last_boxed(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    answer = tagged[-1].strip() if tagged else boxed if boxed is not None else lines[-1] if lines else ""
    # An exponent of many digits is a number that some scorers would write out.
    if not answer or len(answer) > LONGEST or re.search(r"\d[eE][+-]?\d{4}", answer):
        return None
    return answer


# ---- what a scorer may see ---------------------------------------------------------------------------------------

_NOT_FINITE = re.compile(r"(?<![a-z])(?:nan|inf(?:inity)?)[ij]?(?![a-z])", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+(?:\.\d*)?(?:e[+-]?\d+)?", re.IGNORECASE)

_SYMPY_INFINITE = frozenset({"nan", "oo", "zoo"})
_FUNCTIONS = frozenset({"exp", "log", "ln", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"})
_SIGNS = (ast.UnaryOp, ast.UAdd, ast.USub)
_LITERALS = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Load, *_SIGNS)
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.Name, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, *_SIGNS)


def is_finite(answer: str) -> bool:
    """Whether it has no NaN, with or without its spaces, no infinity and no number that a float takes for one."""
    squeezed = "".join(answer.split())  # as some scorers read it: "n an" is NaN for them
    said = _NOT_FINITE.search(answer) or _NOT_FINITE.search(squeezed)
    return not said and math.inf not in map(float, _NUMBERS.findall(answer))


def is_harmless(task: str, answer: str) -> bool:
    """Whether the task's scorer computes little on ``answer`` and calls nothing but mathematics.

    Always, for a scorer that evaluates nothing. For one that takes Python: a literal, or text that is no Python; no
    name, as it could be that of the scorer's gold answer. For one that asks sympy: at most 200 characters of numbers,
    names of nothing infinite, ``+ - * /``, powers and known functions, these two at most eight together, no power in a
    power, exponents of at most 20 (6 over a sum or a function, 2 over a sum of functions: these take long to simplify);
    no quotes, as sympy would read their text again.
    """
    if task not in PYTHON | SYMPY:
        return True
    try:
        nodes = list(ast.walk(ast.parse(answer, mode="eval")))
    except (SyntaxError, ValueError):
        return task in PYTHON
    except (MemoryError, RecursionError):
        return False
    if task in PYTHON:
        return all(isinstance(node, _LITERALS) for node in nodes)
    costly = [node for node in nodes if isinstance(node, ast.Pow | ast.Call)]
    return len(answer) <= 200 and len(costly) <= 8 and all(map(_is_arithmetic, nodes))


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and abs(node.value) < 1e12
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        inside = [part for side in (node.left, node.right) for part in ast.walk(side)]
        calls = any(isinstance(part, ast.Call) for part in inside)
        most = (2 if calls else 6) if isinstance(node.left, ast.BinOp) else 6 if calls else 20
        return _is_small(node.right, most) and not any(isinstance(part, ast.Pow) for part in inside)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and len(node.args) == 1
    return isinstance(node, _ARITHMETIC) and not (isinstance(node, ast.Name) and node.id in _SYMPY_INFINITE)


def _is_small(exponent: ast.expr, most: int) -> bool:
    """A number of at most ``most`` with its sign, a fraction of such, or a name."""
    if isinstance(exponent, ast.UnaryOp):
        return _is_small(exponent.operand, most)
    if isinstance(exponent, ast.BinOp) and isinstance(exponent.op, ast.Div):
        return _is_small(exponent.left, most) and _is_small(exponent.right, most)
    if isinstance(exponent, ast.Constant):
        return isinstance(exponent.value, int | float) and exponent.value <= most
    return isinstance(exponent, ast.Name)
