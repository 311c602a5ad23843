"""Random streams that depend on what is drawn, so that a resumed run, or a seed trained alone, repeats them."""

from __future__ import annotations

import numpy as np
import torch

NETWORKS, STEPS, STARTS, ORDER = range(4)
"""Streams of a seed: initial weights, an iteration's actions and resets, the first episodes, minibatches."""


def generator(seed: int, stream: int, *parts: int) -> torch.Generator:
    """A generator of its own for its arguments, equal in every process; on the CPU, whatever the device."""
    state = np.random.SeedSequence((seed, stream, *parts)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]) >> 1)
