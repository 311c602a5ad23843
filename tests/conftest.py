"""What every test may rely on: no network, one thread, the same random numbers in every run."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # tests run side by side, and more threads than cores wait for each other
torch.set_num_threads(1)

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
