"""What clients of the endpoint are told, and what becomes of those that hang up."""

from __future__ import annotations

import json
import re
import socket
import threading
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlparse

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from atgrpo.engines.base import EngineLostError
from atgrpo.envs.external import Client, External
from atgrpo.rollout.collector import Collector
from atgrpo.rollout.endpoint import EndpointSampler
from atgrpo.rollout.endpoint_play import PlayError
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.training.evaluation import evaluation_sampler
from atgrpo.types import Sample
from tests.rollout.endpoint import SAMPLES, Told, by_seed, collect, post, say
from tests.rollout.helpers import AGENTS, Tally, render, table

ASK: list[Any] = [{"role": "user", "content": "?"}]
GOOD = {"model": "a", "messages": ASK}


def refusal(body: Any, path: str = "/chat/completions") -> tuple[int, str]:
    """Status and line that a request gets; the play goes on, and the refused call is no turn."""
    seen: list[tuple[int, str]] = []

    def play(client: Client, sample: Sample) -> float:
        try:
            post(client, body, path)
        except HTTPError as error:
            seen.append((error.code, str(error)))
        say(client, "a", "?")
        return 1.0

    (rollout,) = collect(play, trajectories=1)
    assert [(turn.key.agent, turn.key.turn) for turn in rollout.turns] == [("a", 0)]
    return seen[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"temperature": 0.5}, "temperature: got 0.5, expected none or sampler.temperature=1.0"),
        ({"temperature": 0}, "temperature: got 0, expected none or"),
        ({"temperature": "hot"}, "temperature: got 'hot', expected a number"),
        ({"top_p": 0.9}, "top_p: got 0.9, expected none or 1"),
        ({"n": 2}, "n: got 2, expected none or 1"),
        ({"max_tokens": 0}, "max_tokens: got 0, expected a number of at least 1"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens: got '9', expected"),
        ({"stop": ["\n"]}, "stop: got .* expected none: it is not supported"),
        ({"tools": [{"type": "function"}]}, "tools: got .* not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format: got .*json_object.* expected none or"),
        ({"top_k": 5}, "top_k: got 5, expected none"),
        ({"messages": []}, "messages: got None, expected a list with at least one message"),
        ({"messages": ["?"]}, r"messages\[0\]: got '\?', expected an object with role and content"),
        ({"messages": [{"role": "user", "content": None}]}, r"messages\[0\].content: got None, expected text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, r"\.content: got .* expected text"),
        ({"messages": [ASK[0] | {"content": "a\ud800"}]}, r"messages\[0\]: got half a character, '\\ud800', expected"),
        ({"messages": [*ASK, {"role": "\udfff", "content": ""}]}, r"messages\[1\]: got half a character"),
        ({"messages": [ASK[0] | {"tool_calls": [{}]}]}, r"messages\[0\].tool_calls: got"),
    ],
    ids=str,
)
def test_what_would_change_the_sampling_is_refused_in_one_line(more: dict[str, Any], message: str) -> None:
    status, line = refusal(GOOD | more)
    assert status == 400 and "\n" not in line
    assert re.search(message, line)


@pytest.mark.parametrize(
    ("body", "path", "status", "message"),
    [
        (GOOD | {"model": "solver"}, "/chat/completions", 404, "model: got 'solver', expected a role: a, b"),
        ({"messages": ASK}, "/chat/completions", 400, "model: got None, expected the name of a role"),
        ([], "/chat/completions", 400, "the request got no JSON object"),
        (b"{", "/chat/completions", 400, "the request got no JSON: "),
        (b"[" * 100_000, "/chat/completions", 400, "the request got no JSON: "),
        (b"\xff", "/chat/completions", 400, "the request got no JSON: "),
        (b"1" * 5_000, "/chat/completions", 400, "the request got no JSON: "),
        (GOOD | {"model": "\ud800"}, "/chat/completions", 404, "expected a role: a, b"),
        (GOOD, "/completions", 404, "got POST /v1/completions, expected /v1/chat/completions"),
        (None, "/files", 404, "got GET /v1/files, expected /v1/models"),
    ],
    ids=["role", "no-role", "list", "no-json", "deep", "no-text", "digits", "half", "post", "get"],
)
def test_what_is_not_there_is_refused(body: Any, path: str, status: int, message: str) -> None:
    told = refusal(body, path)
    assert told[0] == status and message in told[1]


def test_fields_that_change_nothing_are_taken() -> None:
    texts = [{"type": "text", "text": "p"}, {"type": "text", "text": "0"}]
    body = {
        "model": "a",
        "messages": [{"role": "user", "content": texts, "name": "me", "tool_calls": None}],
        **{"temperature": 1, "top_p": 1.0, "n": 1, "stop": None, "tools": [], "seed": 3, "user": "u", "stream": False},
        **{"response_format": {"type": "text"}, "frequency_penalty": 0.0},
    }
    engine = Told(table({"p0": ["yes"]}))
    (rollout,) = collect(lambda client, _: float(bool(post(client, body))), engine, trajectories=1)
    assert [turn.completion.text for turn in rollout.turns] == ["yes"]


def test_a_key_is_void_once_its_play_has_ended() -> None:
    clients: list[Client] = []

    def play(client: Client, sample: Sample) -> float:
        clients.append(client)
        return 0.0

    assert collect(play, trajectories=1)[0].turns == ()
    with pytest.raises(HTTPError, match="401: api_key: got that of no play under way"):
        post(clients[0], GOOD)
    with pytest.raises(HTTPError, match="401"):
        post(Client(clients[0].base_url, "", 0), None, "/models")


def test_openais_client_works_as_it_is() -> None:
    lines: list[str] = []

    def play(client: Client, sample: Sample) -> float:
        with OpenAI(base_url=client.base_url, api_key=client.api_key) as openai:
            lines.extend(f"{model.id} {model.owned_by}" for model in openai.models.list())
            first = openai.chat.completions.create(model="a", messages=ASK, max_tokens=3)
            assert first.usage is not None
            lines.append(f"{first.id} {first.choices[0].message.content} {first.choices[0].finish_reason}")
            lines.append(f"{first.usage.prompt_tokens} + {first.usage.completion_tokens} = {first.usage.total_tokens}")
            # Its own answer goes back as it came.
            history: list[Any] = [*ASK, first.choices[0].message.model_dump(), {"role": "user", "content": "!"}]
            stream = openai.chat.completions.create(
                model="b", messages=history, stream=True, stream_options={"include_usage": True}
            )
            for chunk in stream:
                lines.extend(f"{chunk.id} {c.delta.content} {c.finish_reason}" for c in chunk.choices)
                lines.extend([f"{chunk.usage.total_tokens}"] if chunk.usage else [])
            with pytest.raises(BadRequestError, match=r"sampler\.temperature=1\.0"):
                openai.chat.completions.create(model="a", messages=ASK, temperature=0.2)
        return 1.0

    (rollout,) = collect(play, Told(table({"?": ["yes"], "!": ["on"]})), trajectories=1)
    assert lines == ["a pa", "b pb", "a-0 yes stop", "1 + 3 = 4", "b-0 on stop", "3"]
    assert [turn.completion.text for turn in rollout.turns] == ["yes", "on"]


def test_openais_async_client_works_as_it_is() -> None:
    async def play(client: Client, sample: Sample) -> float:
        async with AsyncOpenAI(base_url=client.base_url, api_key=client.api_key) as openai:
            made = await openai.chat.completions.create(model="b", messages=ASK)
        return float(made.choices[0].message.content == "yes")

    assert collect(play, Told(table({"?": ["yes"]})), trajectories=1)[0].outcome == 1.0


def test_a_call_that_its_client_has_not_waited_for_is_no_turn() -> None:
    gone = threading.Event()

    class Slow(Told):
        def step(self) -> Any:
            assert gone.wait(20)
            return super().step()

    def play(client: Client, sample: Sample) -> float:
        body = json.dumps(GOOD)
        with socket.create_connection(("127.0.0.1", urlparse(client.base_url).port or 0)) as connection:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {client.api_key}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            while not engine.asked:
                gone.wait(0.001)
        gone.set()
        say(client, "a", "?")
        return 1.0

    engine = Slow(by_seed)
    (rollout,) = collect(play, engine, trajectories=1)
    assert len(engine.asked) == 2
    assert [turn.key.turn for turn in rollout.turns] == [1]


def test_a_lost_engine_has_every_unfinished_play_played_again_to_the_same_end() -> None:
    class Mortal(Told):
        life, restarts = 7, 0

        def step(self) -> Any:
            if not self.restarts and not self.life:
                raise EngineLostError("the engine died")
            self.life -= 1
            return super().step()

        def restart(self) -> None:
            self.restarts += 1
            self.queue = []

    def play(client: Client, sample: Sample) -> float:
        return len(say(client, "b", say(client, "a", sample.prompt))) / 10

    engine = Mortal(by_seed)
    again = collect(play, engine, samples=SAMPLES, trajectories=2)
    assert engine.restarts == 1
    assert [r.turns for r in again] == [r.turns for r in collect(play, samples=SAMPLES, trajectories=2)]


def test_a_fault_of_ours_while_a_call_is_answered_stops_the_run() -> None:
    def broken(*_: Any) -> tuple[int, ...]:
        raise RuntimeError("no such template")

    def play(client: Client, sample: Sample) -> float:
        with pytest.raises(HTTPError):
            say(client, "a", "?")
        return 1.0  # however the play takes it

    team = Collector(Told(by_seed), lambda: External("ab", play), AGENTS, broken, 100)  # type: ignore[arg-type]
    with pytest.raises(PlayError, match="RuntimeError: no such template"):
        team.collect(SAMPLES[:1], EndpointSampler(), seed=0)


def test_evaluation_plays_the_same_function_once_and_greedily_whatever_temperature_it_names() -> None:
    training = EndpointSampler(turns=3, trajectories=8, temperature=0.7, max_tokens=9, plays=5)
    greedy, sampled = evaluation_sampler(training, "greedy"), evaluation_sampler(training, "sampled")
    assert isinstance(greedy, EndpointSampler) and isinstance(sampled, EndpointSampler)
    assert (greedy.trajectories, greedy.temperature, greedy.turns, greedy.plays) == (1, 0.0, 3, 5)
    assert (sampled.trajectories, sampled.temperature) == (1, 0.7)
    engine = Told(by_seed)
    collect(lambda client, _: len(say(client, "a", "?", temperature=0.7)), engine, temperature=0.0, trajectories=1)
    assert [request.sampling.temperature for request in engine.asked] == [0.0]


@pytest.mark.parametrize(
    ("environment", "sampler", "message"),
    [
        (Tally, EndpointSampler(), "got the environment Tally, expected env=external"),
        (lambda: External("ab", lambda client, sample: 0.0), ParallelSampler(), "expected sampler=endpoint"),
    ],
    ids=["env", "sampler"],
)
def test_a_sampler_and_an_environment_that_do_not_fit_are_refused(environment: Any, sampler: Any, message: str) -> None:
    team = Collector(Told(by_seed), environment, AGENTS, render, 100)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        team.collect(SAMPLES[:1], sampler, seed=0)
