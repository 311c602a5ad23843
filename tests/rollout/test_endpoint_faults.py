"""Requests that no honest client would send, each refused in one line, and plays that fail."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlparse

import pytest
from jinja2 import TemplateError

from atgrpo.envs.external import Client, External
from atgrpo.rollout.collector import Collector
from atgrpo.rollout.endpoint import EndpointSampler
from atgrpo.rollout.endpoint_chat import RefusedError, read_chat
from atgrpo.rollout.endpoint_play import PlayError
from atgrpo.rollout.endpoint_server import MOST
from atgrpo.types import Message, Sample
from tests.rollout.endpoint import SAMPLES, Told, by_seed, collect, post, say
from tests.rollout.helpers import AGENTS, render

GOOD: Any = {"model": "a", "messages": [{"role": "user", "content": "?"}]}


def raw(client: Client, head: str, body: bytes = b"") -> tuple[int, str]:
    """Status and line that a request gets whose headers no client would write."""
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", urlparse(client.base_url).port or 0), timeout=20) as connection:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {client.api_key}\r\n{head}\r\n\r\n"
        connection.sendall(head.encode() + body)
        with connection.makefile("rb") as reply:
            said = reply.read()
    assert time.monotonic() - start < 10
    return int(said.split()[1]), json.loads(said.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize(
    ("head", "status", "message"),
    [
        ("Content-Length: -1", 400, "Content-Length: got '-1', expected a number of bytes"),
        ("Content-Length: abc", 400, "Content-Length: got 'abc', expected a number of bytes"),
        ("Content-Length: 1_0", 400, "Content-Length: got '1_0', expected a number of bytes"),
        (f"Content-Length: {MOST + 1}", 413, "Content-Length: got 16777217, expected at most 16777216 bytes"),
        ("Content-Length: " + "9" * 5_000, 413, "expected at most 16777216 bytes"),
        ("Transfer-Encoding: chunked", 411, "expected a body of a known Content-Length"),
        ("X: y", 400, "the request got no JSON"),
    ],
    ids=["negative", "word", "underscore", "large", "digits", "chunked", "none"],
)
def test_a_length_that_is_none_or_too_much_is_refused_at_once(head: str, status: int, message: str) -> None:
    told: list[tuple[int, str]] = []

    def play(client: Client, sample: Sample) -> float:
        told.append(raw(client, head))
        return 1.0

    assert collect(play, trajectories=1)[0].outcome == 1.0
    assert told[0][0] == status and message in told[0][1]


def test_a_client_that_sends_all_of_too_large_a_body_hears_why_it_is_refused() -> None:
    def play(client: Client, sample: Sample) -> float:
        with pytest.raises(HTTPError, match="413: Content-Length: got 16777217, expected at most"):
            post(client, b" " * (MOST + 1))
        return float(bool(post(client, b" " * (MOST - 200) + json.dumps(GOOD).encode())))

    assert collect(play, trajectories=1)[0].outcome == 1.0


def test_what_a_chat_template_does_not_take_is_refused_and_its_own_fault_stops_the_run() -> None:
    def strict(policy: str, messages: Sequence[Message]) -> tuple[int, ...]:
        if messages[0]["role"] != "user":
            raise TemplateError("Conversation roles must\nalternate")
        return render(policy, messages)

    def play(client: Client, sample: Sample) -> float:
        with pytest.raises(HTTPError, match="takes none of the kind: TemplateError: Conversation roles must alternate"):
            post(client, GOOD | {"messages": [{"role": "critic", "content": "?"}]})
        say(client, "a", "?")
        return 1.0

    team = Collector(Told(by_seed), lambda: External("ab", play), AGENTS, strict, 100)  # type: ignore[arg-type]
    (rollout,) = team.collect(SAMPLES[:1], EndpointSampler(trajectories=1), seed=0)
    assert (rollout.outcome, len(rollout.turns)) == (1.0, 1)


def test_a_value_that_is_nested_almost_too_deeply_to_be_read_is_refused() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    for body in (GOOD | {"model": deep}, GOOD | {"top_p": deep}, GOOD | {"messages": [deep]}):
        with pytest.raises(RefusedError, match="the request got JSON that is nested too deeply"):
            read_chat(body)


def test_a_play_that_failed_is_worth_no_more_than_the_worst_that_is_paid() -> None:
    def play(client: Client, sample: Sample) -> float:
        for _ in "123" if sample.id == "s0" else "1":
            say(client, "a", "?")
        return -1.0

    failed, wrong = collect(play, samples=SAMPLES[:2], trajectories=1, unanswered=-1.0)
    assert {turn.rewards.credit for r in (failed, wrong) for turn in r.turns} == {-1.0}
    with pytest.raises(PlayError, match=r"play paid -1, less than the 0 of an episode .*: set env\.unanswered"):
        collect(play, samples=SAMPLES[1:2], trajectories=1)
