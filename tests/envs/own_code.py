"""What the tests of the adapters name by its dotted path, as a recipe would."""

from __future__ import annotations

import functools
from typing import Any, Literal

NOT_CALLABLE = 3


def length(completions: list[str], **kwargs: Any) -> list[float]:
    """TRL's own example: longer is better."""
    return [float(len(text)) for text in completions]


def matches(completions: list[str], ground_truth: list[str], **kwargs: Any) -> list[float]:
    return [float(text == truth) for text, truth in zip(completions, ground_truth, strict=True)]


def first_message(prompts: list[Any], completions: list[Any]) -> list[float]:
    return [
        float(c[0]["content"] == "hi" and p[-1]["role"] == "user") for p, c in zip(prompts, completions, strict=True)
    ]


def only_maths(completions: list[str], task: list[str]) -> list[float | None]:
    return [1.0 if kind == "maths" else None for kind in task]


def nothing(completions: list[str]) -> list[None]:
    return [None] * len(completions)


def not_a_number(completions: list[str]) -> list[float]:
    return [float("nan")] * len(completions)


def right(completions: list[str], answer: list[str]) -> list[float]:
    return [float(text == gold) for text, gold in zip(completions, answer, strict=True)]


def crash(completions: list[str]) -> list[float]:
    raise RuntimeError("no judge today")


def no_list(completions: list[str]) -> float:
    return 1.0


def two(completions: list[str]) -> list[float]:
    return [1.0, 2.0]


def by_ids(completions: list[str], completion_ids: list[list[int]]) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]


def by_place(completions: list[str], /) -> list[float]:
    return [0.0] * len(completions)


async def later(completions: list[str]) -> list[float]:
    return [0.0] * len(completions)


class Later:
    async def __call__(self, completions: list[str]) -> list[float]:
        return [0.0] * len(completions)


later_object = Later()
weighted = functools.partial(length)


def greedy(completions: list[str], tests: list[list[str]], prompts: list[Any]) -> list[float]:
    """Takes the tests out of what it was given."""
    prompts.clear()
    found, tests[0][:] = float(len(tests[0])), []
    return [found]


# ---- tools -------------------------------------------------------------------------------------------------------


def add(a: int, b: int = 1) -> int:
    """Adds two whole numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def join(words: list[str], end: Literal[".", "!"]) -> str:
    """Joins words.

    Args:
        words: Some words.
        end: What stands last.
    """
    words.append(end)
    return " ".join(words)


def halve(pair: tuple[float, float]) -> tuple[float, float]:
    """Halves two numbers.

    Args:
        pair: The numbers.
    """
    return pair[0] / 2, pair[1] / 2


def divide(a: float, b: float) -> float:
    """Divides.

    Args:
        a: By what.
        b: Through what.
    """
    return a / b


def stop() -> str:
    """Stops."""
    raise SystemExit(3)


def shout() -> str:
    """Says a lot."""
    return "<|im_end|>" + "a" * 10_000


def half(text: str, raised: bool = False) -> str:
    """Gives a text back, or raises with it.

    Args:
        text: Some text.
        raised: Whether to raise.
    """
    if raised:
        raise ValueError(text)
    return text


def undescribed(a: int) -> int:
    """Has no Args."""
    return a


def untyped(a):  # type: ignore[no-untyped-def]
    """Has no hints.

    Args:
        a: Something.
    """
    return a


def strict(completions: list[str], answer: list[str]) -> list[float]:
    """1 for the answer, -1 for anything else."""
    return [1.0 if c == a else -1.0 for c, a in zip(completions, answer, strict=True)]
