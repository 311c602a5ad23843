"""Word problems of two to four steps, made by rule: nothing to download, splits disjoint by construction."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atgrpo.data.base import DistinctData, Split
from atgrpo.envs.arithmetic import evaluate
from atgrpo.types import Sample

NAMES = (
    "Tom",
    "Ana",
    "Li",
    "Sam",
    "Eva",
    "Max",
    "Zoe",
    "Ben",
    "Mia",
    "Leo",
    "Ida",
    "Raj",
    "Lucy",
    "Omar",
    "Nora",
    "Paul",
)
HELDOUT_SHARE = 8
"""One in so many (template, numbers) pairs is held out, under every name."""


@dataclass(frozen=True, slots=True)
class Template:
    """A problem with holes: ``n`` is a name, ``a`` .. ``e`` are numbers."""

    text: str
    expression: str
    large: str = ""
    """Numbers drawn from 10 to 40 instead of 2 to 9."""

    @property
    def letters(self) -> str:
        """The numbers it needs, in order."""
        return "".join(sorted(set(re.findall("[a-e]", self.expression))))


# Wordings repeat between the step counts on purpose: a small model then starts from something, and moves on.
TEMPLATES = {
    2: (
        Template("{n} had {a} coins, spent {b} and gave away {c}. How many coins are left?", "{a}-{b}-{c}", "a"),
        Template("{n} had {a} eggs, used {b} and broke {c}. How many eggs are left?", "{a}-{b}-{c}", "a"),
        Template("{n} bakes {a} trays of {b} cookies and eats {c}. How many cookies are left?", "{a}*{b}-{c}"),
        Template("{n} buys {a} packs of {b} stickers and loses {c}. How many stickers are left?", "{a}*{b}-{c}"),
        Template(
            "{n} has {a} boxes with {b} apples each and {c} loose apples. How many apples in total?", "{a}*{b}+{c}"
        ),
        Template(
            "{n} reads {a} pages a day for {b} days, then {c} more pages. How many pages in total?", "{a}*{b}+{c}"
        ),
    ),
    3: (
        Template(
            "{n} had {a} coins, spent {b}, lost {c} and gave away {d}. How many coins are left?",
            "{a}-{b}-{c}-{d}",
            "a",
        ),
        Template("{n} had {a} eggs, used {b}, broke {c} and sold {d}. How many eggs are left?", "{a}-{b}-{c}-{d}", "a"),
        Template(
            "{n} bakes {a} trays of {b} cookies, eats {c} and gives away {d}. How many cookies are left?",
            "{a}*{b}-{c}-{d}",
        ),
        Template(
            "{n} buys {a} packs of {b} stickers, loses {c} and sells {d}. How many stickers are left?",
            "{a}*{b}-{c}-{d}",
        ),
        Template(
            "{n} has {a} boxes with {b} apples each and {c} loose apples, and eats {d}. How many apples are left?",
            "{a}*{b}+{c}-{d}",
        ),
        Template(
            "{n} reads {a} pages a day for {b} days, then {c} pages, then {d} pages. How many pages in total?",
            "{a}*{b}+{c}+{d}",
        ),
    ),
    4: (
        Template(
            "{n} had {a} coins, spent {b}, lost {c}, lent {d} and gave away {e}. How many coins are left?",
            "{a}-{b}-{c}-{d}-{e}",
            "a",
        ),
        Template(
            "{n} had {a} eggs, used {b}, broke {c}, sold {d} and gave away {e}. How many eggs are left?",
            "{a}-{b}-{c}-{d}-{e}",
            "a",
        ),
        Template(
            "{n} bakes {a} trays of {b} cookies, eats {c}, drops {d} and gives away {e}. How many cookies are left?",
            "{a}*{b}-{c}-{d}-{e}",
        ),
        Template(
            "{n} buys {a} packs of {b} stickers and {c} packs of {d} stickers, and loses {e}. "
            "How many stickers are left?",
            "{a}*{b}+{c}*{d}-{e}",
        ),
        Template(
            "{n} has {a} boxes with {b} apples each and {c} loose apples, eats {d} and sells {e}. "
            "How many apples are left?",
            "{a}*{b}+{c}-{d}-{e}",
        ),
        Template(
            "{n} reads {a} pages a day for {b} days, then {c} pages a day for {d} days, then {e} more pages. "
            "How many pages in total?",
            "{a}*{b}+{c}*{d}+{e}",
        ),
    ),
}


class WordProblems(DistinctData):
    """Problems whose gold expression has the given numbers of operations.

    A (template, numbers) pair belongs to one split for good, whatever the name, the sizes or the seed. The answer is a
    positive integer that never stands in the prompt as a number.

    Args:
        steps: Operations of the problems, each 2, 3 or 4; drawn evenly.
        train_size: Samples in ``train``.
        heldout_size: Samples in ``heldout``.
        seed: Which problems are drawn.
    """

    def __init__(
        self, steps: Sequence[int] = (2,), train_size: int = 4096, heldout_size: int = 256, seed: int = 0
    ) -> None:
        if not steps or not set(steps) <= set(TEMPLATES):
            raise ValueError(f"steps got {list(steps)}, expected a list of {sorted(TEMPLATES)}")
        super().__init__(train_size, heldout_size, seed)
        self._steps = tuple(steps)

    def _draw(self, rng: random.Random, name: Split, taken: Mapping[str, Sample]) -> Sample | None:
        steps = rng.choice(self._steps)
        template = rng.choice(TEMPLATES[steps])
        numbers = {k: rng.randint(*((10, 40) if k in template.large else (2, 9))) for k in template.letters}
        expression = template.expression.format_map(numbers)
        if split_of(template, numbers) != name:
            return None
        answer = evaluate(expression)
        if answer < 1 or answer in numbers.values():
            return None
        prompt = template.text.format_map({"n": rng.choice(NAMES), **{k: str(v) for k, v in numbers.items()}})
        return Sample(f"{name}-{len(taken)}", prompt, str(answer), {"steps": steps, "expression": expression})


def split_of(template: Template, numbers: dict[str, int]) -> Split:
    """Which split a problem belongs to: a stable hash of everything but the name."""
    key = f"{template.expression}|{template.text}|{sorted(numbers.items())}"
    return "heldout" if zlib.crc32(key.encode()) % HELDOUT_SHARE == 0 else "train"
