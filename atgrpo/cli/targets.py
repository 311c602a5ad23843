"""Checks ``_target_`` nodes against the signatures they will be called with, before anything is started."""

from __future__ import annotations

import dataclasses
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
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # some builtins tell nothing
        return
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for key in settings:
        if key not in named and not open_ended:
            close = difflib.get_close_matches(key, named, n=1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(named)}"
            raise ValueError(f"{path}.{key}: {node['_target_']} has no such setting; {hint} (~{path}.{key} drops it)")
    if not node.get("_partial_"):
        given = list(named)[: len(node.get("_args_", ()))] + list(settings)
        if missing := [name for name, p in named.items() if p.default is p.empty and name not in given]:
            raise ValueError(f"{path}.{missing[0]}: {node['_target_']} needs this setting")
    _check_types(target, settings, path)


def locate(dotted: Any, path: str) -> Any:
    """The object that a dotted path names, be it in a module, a class or a class within one.

    Raises:
        ValueError: there is none, or it cannot be called.
    """
    try:
        module, *names = str(dotted).split(".")
        found: Any = importlib.import_module(module)
        for name in names:
            if inspect.ismodule(found) and not hasattr(found, name):
                found = importlib.import_module(f"{found.__name__}.{name}")
            else:
                found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}._target_: cannot import {dotted} ({error})") from error
    if not callable(found):
        raise ValueError(f"{path}._target_: got {dotted}, expected a class or a function")
    return found


def _check_types(target: Any, settings: Mapping[str, Any], path: str) -> None:
    try:
        # Fields know the module they were written in; a data class's own __init__ only that of the last class.
        with_hints = target.__init__ if inspect.isclass(target) and not dataclasses.is_dataclass(target) else target
        hints = typing.get_type_hints(with_hints)
    except (AttributeError, NameError, SyntaxError, TypeError):
        # Another package's annotation that exists only for type checkers, or a callable without any.
        return
    for key, value in settings.items():
        if key in hints and not _builds(value) and (complaint := _mismatch(value, hints[key])):
            raise ValueError(f"{path}.{key}: got {value!r}, {complaint}")


def _builds(value: Any) -> bool:
    """Whether there is a target in ``value``, whose type is known only once it is built."""
    if isinstance(value, Mapping):
        return "_target_" in value or any(map(_builds, value.values()))
    return isinstance(value, list) and any(map(_builds, value))


def _mismatch(value: Any, hint: Any) -> str:
    """What is wrong with the type of ``value``, or nothing. A list may stand for a tuple: yaml has none."""
    complaints = []
    for form in (value, tuple(value)) if isinstance(value, list) else (value,):
        try:
            check_type(form, hint)
        except TypeCheckError as error:
            complaints.append(" ".join(str(error).split()))
        else:
            return ""
    return complaints[-1 if typing.get_origin(hint) is tuple else 0]
