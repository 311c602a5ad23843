"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table, a line for each row."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"
