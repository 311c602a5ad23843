"""The chat-completion protocol as far as it can be trained on: reading requests, writing answers and errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atgrpo.types import Completion, Message, Sampling

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
}
"""Fields that are taken at a value that changes nothing, and refused at any other."""
IGNORED = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "safety_identifier",
        "seed",
        "service_tier",
        "store",
        "user",
    }
)
"""Fields that are taken at any value and change nothing; a play's seeds are those of the run."""
READ = frozenset(
    {"max_completion_tokens", "max_tokens", "messages", "model", "stream", "stream_options", "temperature"}
)


class RefusedError(Exception):
    """A request that is not answered, with what its client is told."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {"message": message, "type": "invalid_request_error", "param": param, "code": code},
        }


@dataclass(frozen=True, slots=True)
class Chat:
    """A request for a chat completion."""

    agent: str
    """Its ``model``."""
    messages: tuple[Message, ...]
    max_tokens: int | None
    temperature: float | None
    stream: bool
    stream_usage: bool

    def sampling(self, own: Sampling) -> Sampling:
        """The sampler's, with the lower of both lengths.

        Raises:
            RefusedError: another temperature than that of the sampler. A greedy sampler, which is never trained on,
                overrules any.
        """
        if own.temperature and self.temperature not in (None, own.temperature):
            raise RefusedError(
                f"temperature: got {self.temperature}, expected none or sampler.temperature={own.temperature}, whose "
                "log-probs are trained on",
                param="temperature",
            )
        return Sampling(min(own.max_tokens, self.max_tokens or own.max_tokens), own.temperature)


def read_chat(body: Any) -> Chat:
    """A request's JSON, checked. A field that is null or empty counts as left out.

    Raises:
        RefusedError: a field that is missing, of a wrong type, or would change what is sampled.
    """
    try:
        return _chat(body)
    except RecursionError:  # showing a value that is nested almost too deeply to be read
        raise RefusedError("the request got JSON that is nested too deeply") from None


def _chat(body: Any) -> Chat:
    if not isinstance(body, dict):
        raise RefusedError("the request got no JSON object, expected one")
    given = {name: value for name, value in body.items() if value is not None and value not in ([], {})}
    for name, value in given.items():
        if name in NEUTRAL:
            if value not in NEUTRAL[name]:
                expected = " or ".join(map(repr, NEUTRAL[name]))
                raise RefusedError(f"{name}: got {value!r:.80}, expected none or {expected}", param=name)
        elif name not in READ | IGNORED:
            raise RefusedError(f"{name}: got {value!r:.80}, expected none: it is not supported", param=name)
    agent = given.get("model")
    if not isinstance(agent, str):
        raise RefusedError(f"model: got {agent!r:.80}, expected the name of a role", param="model")
    options = given.get("stream_options", {})
    return Chat(
        agent=agent,
        messages=_messages(given.get("messages")),
        max_tokens=_length(given),
        temperature=_temperature(given.get("temperature")),
        stream=bool(given.get("stream")),
        stream_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def _length(given: Mapping[str, Any]) -> int | None:
    lengths = [(name, given[name]) for name in ("max_tokens", "max_completion_tokens") if name in given]
    for name, value in lengths:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RefusedError(f"{name}: got {value!r:.80}, expected a number of at least 1", param=name)
    return min((value for _, value in lengths), default=None)


def _temperature(value: Any) -> float | None:
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise RefusedError(f"temperature: got {value!r:.80}, expected a number", param="temperature")
    return value


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise RefusedError(f"messages: got {value!r:.80}, expected a list with at least one message", param="messages")
    return tuple(_message(i, message) for i, message in enumerate(value))


def _message(i: int, message: Any) -> Message:
    """Role and content; ``name`` is ignored, as chat templates do."""
    where = f"messages[{i}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RefusedError(f"{where}: got {message!r:.80}, expected an object with role and content", param=where)
    if more := [k for k, v in message.items() if k not in ("role", "content", "name") and v not in (None, [], {})]:
        raise RefusedError(f"{where}.{more[0]}: got {message[more[0]]!r:.80}, expected none", param=where)
    content = message.get("content")
    if isinstance(content, list):
        texts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        content = "".join(texts) if all(isinstance(text, str) for text in texts) else content  # type: ignore[arg-type]
    if not isinstance(content, str):
        raise RefusedError(f"{where}.content: got {content!r:.80}, expected text", param=where)
    try:
        (message["role"] + content).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise RefusedError(f"{where}: got half a character, {half!a}, expected whole ones", param=where) from None
    return {"role": message["role"], "content": content}


def answer(id_: str, chat: Chat, prompt: int, completion: Completion) -> dict[str, Any]:
    """The body that says what was sampled; ``prompt`` is its length in tokens."""
    message = {"role": "assistant", "content": completion.text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": completion.finish_reason}
    return _head(id_, chat, "chat.completion") | {"choices": [choice], "usage": _usage(prompt, completion)}


def chunks(id_: str, chat: Chat, prompt: int, completion: Completion) -> list[dict[str, Any]]:
    """The same for a client that asked for a stream: all text in one chunk."""
    head = _head(id_, chat, "chat.completion.chunk")
    delta = {"role": "assistant", "content": completion.text}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": completion.finish_reason}
    out = [head | {"choices": [choice]}]
    if chat.stream_usage:
        out.append(head | {"choices": [], "usage": _usage(prompt, completion)})
    return out


def models(agents: Mapping[str, str]) -> dict[str, Any]:
    """The roles, as a list of models."""
    entries = [{"id": a, "object": "model", "created": 0, "owned_by": policy} for a, policy in agents.items()]
    return {"object": "list", "data": entries}


def _head(id_: str, chat: Chat, kind: str) -> dict[str, Any]:
    return {"id": id_, "object": kind, "created": int(time.time()), "model": chat.agent}


def _usage(prompt: int, completion: Completion) -> dict[str, int]:
    sampled = len(completion.token_ids)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
