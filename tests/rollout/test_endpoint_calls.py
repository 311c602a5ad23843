from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from atgrpo.rollout.endpoint_calls import AbandonedError, Calls
from atgrpo.types import Completion, Request, Sampling

DONE = [Completion((1,), (-1.0,), "x", "stop")]


def request(number: int = 0) -> Request:
    return Request("p", (number,), 1, Sampling(4), number)


def test_an_answer_goes_to_the_thread_that_asked() -> None:
    calls = Calls()
    with ThreadPoolExecutor(2) as pool:
        waiting = {i: pool.submit(calls.ask, request(i)) for i in range(2)}
        taken: list[tuple[Request, object]] = []
        while len(taken) < 2:
            assert calls.news().result(20) is calls
            taken += (fresh := calls.take())
            for asked, answer in fresh:
                answer([Completion((asked.seed,), (-1.0,), "", "stop")])
    assert {i: future.result()[0].token_ids for i, future in waiting.items()} == {0: (0,), 1: (1,)}
    assert calls.take() == [] and not calls.news().done()


def test_news_are_neither_lost_nor_told_twice() -> None:
    calls = Calls()
    before = calls.news()
    assert not before.done()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(calls.ask, request())
        before.result(20)
        assert calls.news().done()  # not taken yet
        ((_, answer),) = calls.take()
        after: Future[Calls] = calls.news()
        assert not after.done()
        answer(DONE)
        assert asked.result(20) == DONE
        calls.end()
        calls.end()
        assert after.done() and calls.ended and calls.news().done()


def test_who_waits_when_it_is_over_is_told_and_late_answers_go_nowhere() -> None:
    calls = Calls()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(calls.ask, request())
        calls.news().result(20)
        ((_, answer),) = calls.take()
        calls.close()
        answer(DONE)
        with pytest.raises(AbandonedError, match="the rollout is over"):
            asked.result(20)
    with pytest.raises(AbandonedError):
        calls.ask(request())
