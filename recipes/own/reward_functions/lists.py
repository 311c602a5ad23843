"""Reward functions as TRL takes them: lists of completions and columns in, a list of rewards out."""

from __future__ import annotations

from typing import Any


def right_count(completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
    """1 for as many items as asked for, less for each that is missing or too many."""
    return [1 / (1 + abs(len(_items(text)) - int(wanted))) for text, wanted in zip(completions, answer, strict=True)]


def no_repeats(completions: list[str], **kwargs: Any) -> list[float | None]:
    """Share of the items that differ; does not apply to an empty text."""
    return [len(set(items)) / len(items) if (items := _items(text)) else None for text in completions]


def _items(text: str) -> list[str]:
    return [item.strip().lower() for item in text.split(",") if item.strip()]
