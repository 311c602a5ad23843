"""Random streams that depend on what is drawn, not on when: a resumed run draws what the run left alone would have."""

from __future__ import annotations

import random
from hashlib import blake2b


def stable_seed(*parts: int | str) -> int:
    """A seed in [0, 2**62) from its parts, equal in every process and version of Python.

    62 bits leave room for the engine's ``seed + i`` of the i-th completion within a signed 64-bit integer.
    """
    digest = blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def stream(*parts: int | str) -> random.Random:
    """A generator of its own for ``parts``."""
    return random.Random(stable_seed(*parts))
