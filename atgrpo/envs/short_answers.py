"""Short texts that a model wrote: whether they are a number, whether they say the same, how they are shown again."""

from __future__ import annotations

import re
import unicodedata

from atgrpo.envs.answers import equal
from atgrpo.envs.shown import harmless

MAX_LENGTH = 30
"""Longest number that is read; ``equal`` judges as many digits."""

_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}")
_DASHES = str.maketrans("–−", "--")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_IN_NUMBER = re.compile(r"(?<=\d)[.:/-](?=\d)|(?<!\w)-(?=\.?\d)|(?<!\w)\.(?=\d)")
_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+|/0*[1-9]\d*)?", re.ASCII)


def read_number(text: str) -> str | None:
    """The text without outer white space where it is one plain number (``-1,234``, ``0.5``, ``1/3``), else None."""
    stripped = text.strip()
    return stripped if len(stripped) <= MAX_LENGTH and _NUMBER.fullmatch(stripped) else None


def normalised(text: str) -> str:
    r"""Lower case, without punctuation, a, an, the, ``\text{}`` and surplus white space (SQuAD, arXiv:1606.05250).

    What belongs to a number stays (``-1.5 km``, ``12:30``), but for the commas between its thousands.
    """
    plain = _THOUSANDS.sub("", _TEXT.sub(r"\1", text).lower().translate(_DASHES))
    inside = {found.start() for found in _IN_NUMBER.finditer(plain)}
    kept = "".join(c for i, c in enumerate(plain) if i in inside or not unicodedata.category(c).startswith("P"))
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", kept).split())


def exact_match(answer: str, gold: str) -> bool:
    """Whether two short answers agree: numbers by their value, all others by their normalised text.

    A text that normalises to nothing agrees with none.
    """
    if read_number(answer) and read_number(gold):
        return equal(answer.strip(), gold.strip())
    return bool(normalised(gold)) and normalised(answer) == normalised(gold)


def clipped(text: str, limit: int) -> str:
    """The text on one line, at most ``limit`` characters, ``harmless``; repeating it changes nothing."""
    return harmless(" ".join(text.split()))[:limit].strip()
