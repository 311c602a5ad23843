"""Where the shipped configuration lies."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """The folder of configuration groups."""
    return _shipped("conf")


def recipes_dir() -> Path:
    """The folder of recipes."""
    return _shipped("recipes")


def _shipped(name: str) -> Path:
    """A wheel carries the folder inside the package; in a checkout (or an editable install) it lies beside it."""
    package = Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
