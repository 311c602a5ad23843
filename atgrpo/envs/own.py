"""What the adapters for a user's own code share: functions by their dotted path, and a dialogue of bounded text."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from atgrpo.extras import advice
from atgrpo.types import Message

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Spoken:
    """One response, in the words that later prompts use."""

    agent: str
    own: str
    """What its author reads later as its own turn."""
    note: str
    """What the others read later."""


def load_function(path: str, setting: str) -> Callable[..., Any]:
    """The function that ``path`` names, in a module or a class of one.

    Raises:
        ValueError: there is none, it cannot be called, or it is async.
    """
    first, *names = path.split(".")
    try:
        found: Any = importlib.import_module(first)
        for name in names:
            if inspect.ismodule(found) and not hasattr(found, name):
                found = importlib.import_module(f"{found.__name__}.{name}")
            else:
                found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{setting} got {path!r}, expected the dotted path of a function ({error}){advice(error)}"
        ) from error
    if not callable(found) or inspect.ismodule(found):
        raise ValueError(f"{setting} got {path!r}, expected a function, not a {type(found).__name__}")
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(getattr(found, "__call__", None)):  # noqa: B004
        raise ValueError(f"{setting} got {path!r}, expected a plain function, not an async one")
    return found


def dialogue(agent: str, system: str, prompt: str, spoken: Sequence[Spoken]) -> tuple[Message, ...]:
    """The agent's earlier turns, each after what it had read, and the message it answers now.

    An empty ``system`` gives no system message. Where nothing was said since its last turn, the prompt stands again.
    """
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    news = [prompt]
    for part in spoken:
        if part.agent == agent:
            messages += [_user(news or [prompt]), {"role": "assistant", "content": part.own}]
            news = []
        else:
            news.append(part.note)
    return (*messages, _user(news or [prompt]))


def _user(lines: Sequence[str]) -> Message:
    return {"role": "user", "content": "\n".join(lines)}


@functools.lru_cache(maxsize=64)
def warn_once(name: str, complaint: str) -> None:
    """Says once what somebody's own code raised: the rewards go missing silently otherwise."""
    logger.warning("%s failed, its rewards are missing: %s", name, complaint)
