"""Any reasoning-gym task; for the maths teams those whose answers are numbers or expressions."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any

from atgrpo.data.base import DrawnData, Split, scorable_gold
from atgrpo.envs.reasoning_gym import judged, scorer
from atgrpo.extras import optional
from atgrpo.types import Sample

logger = logging.getLogger(__name__)

SPARE = 4
"""Problems drawn, at most, for each one that is kept."""
NONSENSE = ("0", "1", "-1", "x", "null", "[]", "{}", "True")
"""What no scorer may pay in most problems, beside the question itself."""
PROBED = 16
"""Problems that a scorer is tried on; fewer than half of these, without those that have this answer, say nothing."""


class ReasoningGym(DrawnData):
    """Problems of one reasoning-gym task.

    With ``scorable_only`` they are for teams judged by ``envs.answers.equal``, which compares values, not forms: a task
    about form (simplifying a fraction) would pay for copying the problem. Without, any task goes, for
    ``envs.reasoning_gym``, which asks the task's own scorer: ``meta["reasoning_gym"]`` holds what that needs. A task
    whose scorer pays one and the same nonsense (``NONSENSE``) as much as the gold answers in three of four problems is
    refused, as there is nothing to learn from it.

    Args:
        task: Its name in reasoning-gym.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``; no text of it is in ``train``.
        seed: Which problems are drawn.
        scorable_only: Keep only problems whose answer is a number or an expression.
        settings: The task's own settings.
    """

    def __init__(
        self,
        task: str,
        train_size: int = 4096,
        heldout_size: int = 256,
        seed: int = 0,
        scorable_only: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(train_size, heldout_size, seed)
        self._task, self._settings, self._scorable_only = task, settings, scorable_only

    def _generate(self, name: Split) -> Sequence[Sample]:
        taken = {sample.prompt for sample in self.split("heldout")} if name == "train" else set()
        samples = self._others(name, taken)
        if not self._scorable_only:
            _check_scorer(self._task, samples[:PROBED])
        return samples

    def _others(self, name: Split, taken: set[str]) -> Sequence[Sample]:
        size = self._sizes[name]
        samples: list[Sample] = []
        refused = 0
        for index, entry in enumerate(self._dataset(name, size * SPARE)):
            gold, prompt = self._gold(entry["answer"]), str(entry["question"])
            refused += gold is None
            if gold is not None and prompt not in taken:
                taken.add(prompt)
                origin = {"task": self._task, "settings": self._settings, "answer": entry["answer"]}
                samples.append(Sample(f"{name}-{index}", prompt, gold, {**entry["metadata"], "reasoning_gym": origin}))
            if len(samples) == size or index + 1 == refused == min(size * SPARE, 64):
                break
        if not samples:
            raise ValueError(f"task got {self._task!r}, expected one whose answers are numbers or expressions")
        if len(samples) < size:
            raise ValueError(f"{name}_size got {size}, expected at most about {len(samples)} for {self._task!r}")
        if refused:
            logger.warning("%s: refused %d answers that cannot be judged", self._task, refused)
        return tuple(samples)

    def _gold(self, answer: Any) -> str | None:
        """The answer as a sample has it. Some tasks give none, as many are right."""
        if self._scorable_only:
            return scorable_gold(str(answer))
        return "" if answer is None else str(answer)

    def _dataset(self, name: Split, size: int) -> Any:
        reasoning_gym = optional("reasoning_gym")
        if self._task not in reasoning_gym.factory.DATASETS:
            raise ValueError(f"task got {self._task!r}, expected the name of a reasoning-gym task")
        # Entry i of a task is drawn from seed + i, so neighbouring seeds would share almost all entries.
        seed = random.Random(f"{self._seed}-{name}").randrange(2**31)
        try:
            return reasoning_gym.create_dataset(self._task, size=size, seed=seed, **self._settings)
        except (TypeError, AssertionError, AttributeError) as error:  # the last: a mapping for what is an object there
            raise ValueError(f"settings of {self._task!r} got {self._settings}: {error}") from error


def _check_scorer(task: str, samples: Sequence[Sample]) -> None:
    """Refuses a task that pays nonsense.

    Raises:
        ValueError: it does; the message says what and how often.
    """
    if paid := [said for nonsense in (*NONSENSE, None) if (said := _payment(nonsense, samples))]:
        raise ValueError(
            f"task got {task!r}, expected one whose scorer tells answers apart; it pays as much as for the gold answer "
            f"for {', '.join(paid[:3])}{' and more' if paid[3:] else ''}"
        )


def _payment(nonsense: str | None, samples: Sequence[Sample]) -> str:
    """In how many problems it is paid, in words; None stands for the question. Empty where these are few."""
    others = [sample for sample in samples if nonsense is None or not _alike(nonsense, sample.answer)]
    paid = 0
    for tried, sample in enumerate(others, 1):
        paid += _is_paid(sample.prompt if nonsense is None else nonsense, sample)
        if 4 * (tried - paid) > len(others):
            return ""
    if 2 * len(others) < PROBED:
        return ""
    return f"{'the question' if nonsense is None else repr(nonsense)} ({paid} of {len(others)} problems)"


def _is_paid(answer: str, sample: Sample) -> bool:
    score, gold = scorer(sample), sample.meta["reasoning_gym"]["answer"]
    try:
        said = judged(score, sample, answer)
        return said > 0 and said >= (1.0 if gold is None else judged(score, sample, gold))
    except Exception:  # on the gold answer, and of any type: the environment leaves such rewards out
        return False


def _alike(answer: str, gold: str) -> bool:
    """The same text in any case, or the same number."""
    try:
        return float(answer) == float(gold)
    except ValueError:
        return answer.casefold() == gold.casefold()
