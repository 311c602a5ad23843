"""How threads that the collector does not run get their requests to the engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock

from atgrpo.types import Completion, Request

Answer = Callable[[list[Completion]], None]


class AbandonedError(RuntimeError):
    """What was asked is not going to be answered: the run has ended, or the tree is grown anew."""


class Calls:
    """Requests that other threads make while a growth stands still, which yields this instead of a list of requests.

    The collector answers each as soon as the engine has, in whatever order they come, and sends the growth on once
    ``end`` was called. So a thread that thinks holds up neither the engine, nor other trees, nor its siblings.
    """

    def __init__(self) -> None:
        self.ended = False
        self._lock = Lock()
        self._fresh: list[tuple[Request, Future[list[Completion]]]] = []
        self._unanswered: set[Future[list[Completion]]] = set()
        self._closed = False
        self._news: Future[Calls] | None = None

    def ask(self, request: Request) -> list[Completion]:
        """The request's completions; the calling thread waits for them.

        Raises:
            AbandonedError: there are none, and will be none.
        """
        reply: Future[list[Completion]] = Future()
        with self._lock:
            if self._closed:
                raise AbandonedError("the rollout is over")
            self._fresh.append((request, reply))
            self._unanswered.add(reply)
            self._ring()
        return reply.result()

    def end(self) -> None:
        """The growth can go on."""
        with self._lock:
            self.ended = True
            self._ring()

    def close(self) -> None:
        """Tells the threads that still wait."""
        with self._lock:
            self._closed = True
            for reply in self._unanswered:
                reply.set_exception(AbandonedError("the rollout is over"))
            self._unanswered.clear()

    def news(self) -> Future[Calls]:
        """Done, with this object, as soon as something was asked since ``take``, or nothing more will be."""
        with self._lock:
            news: Future[Calls] = Future()
            self._news = news
            if self._fresh or self.ended:
                self._ring()
            return news

    def take(self) -> list[tuple[Request, Answer]]:
        """What was asked since the last time, each with where its completions go."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
        return [(request, partial(self._answer, reply)) for request, reply in fresh]

    def _answer(self, reply: Future[list[Completion]], completions: list[Completion]) -> None:
        with self._lock:
            if reply in self._unanswered:  # else its growth is over: a call that its play did not wait for
                self._unanswered.remove(reply)
                reply.set_result(completions)

    def _ring(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(self)
