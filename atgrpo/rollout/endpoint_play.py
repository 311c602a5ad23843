"""One play of a team that is written elsewhere: its thread, its calls, and what it came to."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import math
import secrets
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock, Thread
from typing import Any

from atgrpo.envs.contract import EnvError, check_paid
from atgrpo.envs.external import Client, External, Result, as_result
from atgrpo.rollout.endpoint_calls import Calls
from atgrpo.rollout.endpoint_chat import Chat, RefusedError, answer, chunks, models, read_chat
from atgrpo.rollout.endpoint_server import Reply, the_server
from atgrpo.rollout.seeds import stable_seed
from atgrpo.rollout.walk import Candidate, Episode, Node, Path
from atgrpo.types import Action, Completion, Message, Observation, Request, Sampling, StepResult

logger = logging.getLogger(__name__)

PLAIN: tuple[Message, ...] = ({"role": "user", "content": "?"},)
"""A chat that every template takes."""


class PlayError(EnvError):
    """The function that plays raised an error, or returned what is no result."""


@dataclass(frozen=True, slots=True)
class Call:
    """One answered call."""

    observation: Observation
    prompt_ids: tuple[int, ...]
    completion: Completion


@dataclass(eq=False)
class Play:
    """Trajectory ``number`` of an episode, which runs in one thread while its calls are answered in others."""

    episode: Episode
    env: External
    number: int
    sampling: Callable[[str], Sampling]
    turns: int
    """Most calls of one agent."""
    calls: Calls
    on_end: Callable[[Play], None]
    """Called once, when it has ended or failed."""
    error: PlayError | None = None
    overlong: bool = False
    _answered: dict[tuple[str, int], Call] = field(default_factory=dict)
    _asked: Counter[str] = field(default_factory=Counter)
    _refused: set[str] = field(default_factory=set)
    """Agents whose latest call was overlong or one too many."""
    _result: Result | None = None
    _over: bool = False
    _key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    _lock: Lock = field(default_factory=Lock)

    def run(self) -> None:
        """Plays, in the calling thread, unless that is no longer wanted."""
        if self._over:
            return
        server = the_server()
        server.plays[self._key] = self
        try:
            client = Client(server.base_url, self._key, self._seed("play"))
            # A copy, as the sample is played by others at the same time.
            sample = copy.deepcopy(self.episode.sample)
            self._end(self._checked(as_result(_value(self.env.play(client, sample)))))
        except BaseException as error:  # also SystemExit: nobody would hear that this thread has ended
            if self._refused and isinstance(error, Exception):
                if any(self._asked[agent] >= self.turns for agent in self._refused):
                    _tell_once(self.turns)
                self._end(Result(team=self.env.unanswered))  # it is the team that let it grow
            else:
                self.fail(error)
        finally:
            del server.plays[self._key]

    def close(self) -> None:
        """Nothing more is answered or recorded."""
        with self._lock:
            self._over = True

    def fail(self, error: BaseException) -> None:
        """Ends it: the function that plays, or what answers its calls, broke."""
        where = f"sample {self.episode.sample.id!r}, trajectory {self.number}"
        failure = PlayError(f"play failed on {where}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._end(failure)

    def models(self) -> dict[str, Any]:
        """The roles."""
        return models(self.episode.agents)

    def chat(self, body: Any, there: Callable[[], bool]) -> Reply:
        """Answers a call and records it, unless its client has not waited for it.

        Raises:
            RefusedError: it cannot be answered as it stands.
            AbandonedError: the play is over.
        """
        chat = read_chat(body)
        policy = self.episode.agents.get(chat.agent)
        if policy is None:
            expected = ", ".join(self.episode.agents)
            raise RefusedError(
                f"model: got {chat.agent!r:.80}, expected a role: {expected}", status=404, code="model_not_found"
            )
        sampling = chat.sampling(self.sampling(chat.agent))
        prompt_ids = self._rendered(policy, chat)
        turn = self._next_turn(chat.agent)
        request = Request(policy, prompt_ids, 1, sampling, self._seed(chat.agent, turn))
        (completion,) = self.calls.ask(request)
        with self._lock:
            if not self._over and there():
                observation = Observation(chat.agent, chat.messages)
                self._answered[chat.agent, turn] = Call(observation, prompt_ids, completion)
        written = chunks if chat.stream else answer
        return written(_id(chat.agent, turn), chat, len(prompt_ids), completion)

    def path(self) -> Path:
        """What was played, turn by turn, each in the team's order: threads' timing has no say in it."""
        assert self._result is not None
        result, order = self._result, list(self.episode.agents)
        calls = sorted(self._answered, key=lambda call: (call[1], order.index(call[0])))
        ids = [_id(*call) for call in calls]
        env = self.env.ended(result)
        nodes = []
        for i, (agent, turn) in enumerate(calls):
            call = self._answered[agent, turn]
            step = StepResult(result.team, result.local.get(ids[i], 0.0), done=i == len(calls) - 1)
            action = Action(call.completion.text, valid=True)
            candidates = (Candidate(self.number, call.completion, action, step, env),)
            nodes.append(Node(i, agent, turn, call.prompt_ids, call.observation, candidates, (None,), 0))
        # What a team would have reached had it stopped earlier is not known.
        unknown = [math.nan] * (self.turns - 1)
        return Path(env, nodes, unknown, self.overlong, result.team)

    def _checked(self, result: Result) -> Result:
        with self._lock:
            ids = [_id(*call) for call in self._answered]
        if strangers := sorted(set(result.local) - set(ids)):
            raise EnvError(
                f"Result.local got {strangers[0]!r:.80}, expected ids of this play's calls: {', '.join(ids)}"
            )
        check_paid("play", result.team, self.env.unanswered)
        return result

    def _rendered(self, policy: str, chat: Chat) -> tuple[int, ...]:
        try:
            ids = self.episode.render(policy, chat.messages)
        except Exception as error:  # of the template's own choice
            self.episode.render(policy, PLAIN)  # fails as well if the fault is ours
            said = " ".join(str(error).split())
            raise RefusedError(
                f"messages: the chat template takes none of the kind: {type(error).__name__}: {said:.200}",
                param="messages",
            ) from error
        limit = self.episode.max_prompt_tokens
        if len(ids) > limit:
            self.overlong = True
            self._refused.add(chat.agent)
            raise RefusedError(
                f"messages: got {len(ids)} tokens, expected at most max_prompt_tokens={limit}",
                code="context_length_exceeded",
                param="messages",
            )
        return ids

    def _next_turn(self, agent: str) -> int:
        with self._lock:
            turn = self._asked[agent]
            if turn >= self.turns:
                self._refused.add(agent)
                raise RefusedError(
                    f"got call {turn + 1} of {agent!r}, expected at most sampler.turns={self.turns}",
                    code="too_many_calls",
                )
            self._asked[agent] += 1
            self._refused.discard(agent)
        return turn

    def _seed(self, *parts: str | int) -> int:
        return stable_seed(self.episode.seed, self.episode.tree, "trajectory", self.number, *parts)

    def _end(self, outcome: Result | PlayError) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
            if isinstance(outcome, PlayError):
                self.error = outcome
            else:
                self._result = outcome
        self.on_end(self)


class Crew:
    """At most so many daemon threads, which play in the order of asking; each ends when nothing waits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Play] = deque()
        self._working = 0
        self._lock = Lock()

    def put(self, play: Play) -> None:
        """Has it played."""
        with self._lock:
            self._waiting.append(play)
            if self._working == self._most:
                return
            self._working += 1
        Thread(target=self._work, name="play", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                play = self._waiting.popleft()
            play.run()


@cache
def _tell_once(turns: int) -> None:
    logger.warning(
        "a play asked for more than sampler.turns=%d calls of one agent and was ended by the refusal: its reward is 0, "
        "as is that of every such play",
        turns,
    )


def _id(agent: str, turn: int) -> str:
    """Of a chat completion; unique within its play."""
    return f"{agent}-{turn}"


def _value(returned: Any) -> Any:
    """What a function returned; what it came to, if the function was async."""
    if not inspect.isawaitable(returned):
        return returned

    async def awaited() -> Any:
        return await returned

    return asyncio.run(awaited())
