from __future__ import annotations

import pytest

from atgrpo.policies.causal_lm import CausalLMPolicy


@pytest.fixture(scope="session")
def tiny() -> CausalLMPolicy:
    """Never stepped, so that every test finds the same weights."""
    return CausalLMPolicy("tiny")
