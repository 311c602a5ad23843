"""Checks ``_target_`` nodes against the signatures they will be called with, before anything is started."""

from __future__ import annotations

import difflib
import importlib
import inspect
import typing
from collections.abc import Mapping
from typing import Any

from typeguard import TypeCheckError, check_type

HYDRA_KEYS = frozenset({"_target_", "_partial_", "_args_", "_convert_", "_recursive_"})


def check_targets(node: Any, path: str = "") -> None:
    """Walks a plain configuration.

    Raises:
        ValueError: a target that cannot be imported, a setting it does not take, one it needs, one of a wrong type.
    """
    if isinstance(node, list):
        for i, item in enumerate(node):
            check_targets(item, f"{path}[{i}]")
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        check_targets(value, f"{path}.{key}" if path else str(key))
    if "_target_" in node:
        _check_call(node, path)


def _check_call(node: Mapping[str, Any], path: str) -> None:
    target = locate(node["_target_"], path)
    settings = {key: value for key, value in node.items() if key not in HYDRA_KEYS}
    parameters = inspect.signature(target).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in settings:
        if key not in parameters and not open_ended:
            close = difflib.get_close_matches(key, parameters, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(parameters)}"
            raise ValueError(f"{path}.{key}: {node['_target_']} has no such setting; {hint}")
    if not node.get("_partial_"):
        needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        if missing := [n for n in needed if n not in settings]:
            raise ValueError(f"{path}.{missing[0]}: {node['_target_']} needs this setting")
    _check_types(target, settings, path)


def locate(dotted: str, path: str) -> Any:
    """The object that a dotted path names.

    Raises:
        ValueError: there is none.
    """
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}._target_: cannot import {dotted} ({error})") from error


def _check_types(target: Any, settings: Mapping[str, Any], path: str) -> None:
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except NameError:  # another package's annotation that exists only for type checkers
        return
    for key, value in settings.items():
        if key not in hints or (isinstance(value, Mapping) and "_target_" in value):
            continue
        try:
            check_type(value, hints[key])
        except TypeCheckError as error:
            raise ValueError(f"{path}.{key}: got {value!r}, {' '.join(str(error).split())}") from None
