"""Packages that only some recipes need."""

from __future__ import annotations

import importlib
from types import ModuleType

EXTRAS = {"PIL": "marl", "datasets": "data", "pettingzoo": "aec", "reasoning_gym": "data", "vmas": "marl"}
"""Module -> the extra of this package that installs it."""


def optional(name: str) -> ModuleType:
    """The module ``name``, one of ``EXTRAS``.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"{name} cannot be imported ({error}){advice(error)}") from error


def advice(error: BaseException) -> str:
    """How to get what could not be imported, where an extra of this package has it; else nothing."""
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    return f", expected: pip install 'atgrpo[{EXTRAS[missing]}]'" if missing in EXTRAS else ""
