"""What tests of the endpoint share: a way to ask with nothing but urllib, and an engine whose answers can be told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from atgrpo.envs.external import Client, External, Play
from atgrpo.rollout.collector import Collector
from atgrpo.rollout.endpoint import EndpointSampler
from atgrpo.types import Completion, Rollout, Sample
from atgrpo.types import Request as Asked
from tests.rollout.helpers import AGENTS, Script, answer, prompt_of, render

SAMPLES = [Sample(f"s{i}", f"p{i}", "!") for i in range(3)]
opener = build_opener(ProxyHandler({}))


def post(client: Client, body: Any, path: str = "/chat/completions") -> dict[str, Any]:
    """The answer's JSON; an HTTPError carries the refusal's line as its reason."""
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = Request(client.base_url + path, data, {"Authorization": f"Bearer {client.api_key}"})
    try:
        with opener.open(request, timeout=20) as reply:
            text = reply.read().decode()
    except HTTPError as error:
        told = json.load(error)["error"]
        raise HTTPError(error.url, error.code, told["message"], error.headers, None) from None
    return json.loads(text) if text.startswith("{") else {"stream": text}


def say(client: Client, role: str, text: str, **more: Any) -> str:
    """What ``role`` answers to ``text``."""
    body = {"model": role, "messages": [{"role": "user", "content": text}], **more}
    return str(post(client, body)["choices"][0]["message"]["content"])


class Told:
    """Answers by a script, one request per step, in an order and at a pace that ``rank`` draws."""

    def __init__(self, script: Script, rank: Random | None = None) -> None:
        self.script = script
        self.rank = rank
        self.asked: list[Asked] = []
        self.queue: list[tuple[int, Asked]] = []

    def submit(self, ticket: int, request: Asked) -> None:
        self.asked.append(request)
        self.queue.append((ticket, request))

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        if self.rank:
            time.sleep(self.rank.random() / 200)
            self.rank.shuffle(self.queue)
        ticket, request = self.queue.pop(0)
        return [(ticket, [answer(request, i, self.script) for i in range(request.n)])]


def by_seed(request: Asked, i: int) -> str:
    """An answer that depends on prompt and seed alone."""
    return f"{prompt_of(request)[-3:]}{Random(request.seed).randrange(10**6)}"


def collect(
    play: Play,
    engine: Any = None,
    *,
    samples: Sequence[Sample] = SAMPLES[:1],
    agents: Mapping[str, str] = AGENTS,
    workers: int = 0,
    max_prompt_tokens: int = 1000,
    seed: int = 5,
    on_done: Callable[[], object] = lambda: None,
    unanswered: float = 0.0,
    **settings: Any,
) -> list[Rollout]:
    """Rollouts of ``play`` over an engine that answers by seed, if none is given."""
    sampler = EndpointSampler(**{"trajectories": 2, "turns": 2, "max_tokens": 20} | settings)
    env = partial(External, list(agents), play, unanswered)
    team = Collector(engine or Told(by_seed), env, agents, render, max_prompt_tokens, workers)
    return team.collect(samples, sampler, seed=seed, on_done=on_done)
