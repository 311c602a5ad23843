"""Tests check every annotation at run time; what a user's process does without that check is tested with it off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxtyping import config


@pytest.fixture
def unchecked_annotations() -> Iterator[None]:
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
