from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from urllib.error import HTTPError

import pytest

from atgrpo.envs.external import Client, Result
from atgrpo.rollout.endpoint import EndpointSampler
from atgrpo.rollout.endpoint_play import PlayError, _tell_once
from atgrpo.types import Sample, Sampling, TurnKey
from tests.rollout.endpoint import SAMPLES, Told, by_seed, collect, say
from tests.rollout.helpers import prompt_of, table


def relay(client: Client, sample: Sample) -> float:
    """b answers what a answered."""
    return float(say(client, "b", say(client, "a", sample.prompt)) == "six")


def test_two_agents_turns_are_what_the_engine_was_asked_and_sampled() -> None:
    engine = Told(table({"p0": ["4+2"], "4+2": ["six"]}))
    (rollout,) = collect(relay, engine, trajectories=1)
    a, b = rollout.turns
    assert (a.key, a.policy) == (TurnKey("s0", 0, "a", 0, 0), "pa")
    assert (b.key, b.policy) == (TurnKey("s0", 0, "b", 0, 0), "pb")
    assert [turn.prompt_ids for turn in rollout.turns] == [request.prompt_ids for request in engine.asked]
    assert (a.prompt_ids, b.prompt_ids) == (tuple(map(ord, "p0")), tuple(map(ord, "4+2")))
    assert (a.completion.token_ids, b.completion.token_ids) == (tuple(map(ord, "4+2")), tuple(map(ord, "six")))
    assert a.completion.logprobs == b.completion.logprobs == (-1.0, -1.0, -1.0)
    assert [(request.n, request.sampling) for request in engine.asked] == [(1, Sampling(20, 1.0))] * 2
    assert (a.done, b.done) == (False, True)
    assert a.selected and a.action.valid and a.action.value == "4+2"
    assert (rollout.outcome, a.rewards.credit, b.rewards.credit) == (1.0, 1.0, 1.0)
    assert rollout.observations["b", 0].messages == ({"role": "user", "content": "4+2"},)


def test_success_is_known_after_the_last_turn_only() -> None:
    (rollout,) = collect(relay, trajectories=2, turns=3)
    assert rollout.outcome == 0.0
    assert [math.isnan(level) for level in rollout.success_by_turn] == [True, True, False]
    assert rollout.success_by_turn[2] == 0.0


@pytest.mark.parametrize(
    ("credit", "expected"),
    # alpha * team = 2 * .5; locals a .25 and .75, b -1.
    [("outcome", [1.0, 1.0, 1.0]), ("return_to_go", [1.5, 0.0, 1.75]), ("step", [1.25, 0.0, 1.75])],
)
def test_every_credit_rule_has_the_plays_reward_and_the_calls_own(credit: str, expected: list[float]) -> None:
    def play(client: Client, sample: Sample) -> Result:
        for role in "aab":
            say(client, role, "?")
        return Result(team=0.5, local={"a-0": 0.25, "b-0": -1.0, "a-1": 0.75}, success=1.0)

    (rollout,) = collect(play, trajectories=1, alpha=2.0, credit=credit)
    assert [(turn.key.agent, turn.key.turn) for turn in rollout.turns] == [("a", 0), ("b", 0), ("a", 1)]
    assert [turn.rewards.credit for turn in rollout.turns] == expected
    assert rollout.outcome == 1.0


def test_a_play_that_could_not_be_judged_is_left_out_and_never_0() -> None:
    def play(client: Client, sample: Sample) -> Result:
        say(client, "a", "?")
        return Result(None)

    (rollout,) = collect(play)
    assert [turn.rewards.credit for turn in rollout.turns] == [None, None]
    assert math.isnan(rollout.outcome)


def restless(client: Client, sample: Sample) -> float:
    """Both agents are asked at once, then a again; every thread takes its time."""
    nap = Random().random
    with ThreadPoolExecutor(2) as pool:

        def ask(role: str) -> str:
            time.sleep(nap() / 100)
            return say(client, role, sample.prompt)

        a, b = pool.map(ask, "ab")
    time.sleep(nap() / 100)
    return (len(say(client, "a", a + b)) + client.seed % 7) / 10


@pytest.mark.parametrize("settings", [{}, {"workers": 3}, {"plays": 1}, {"plays": 4, "workers": 1}], ids=str)
def test_same_seed_same_rollouts_whatever_the_timing_of_threads(settings: dict[str, int]) -> None:
    def played(seed: int, **more: Any) -> list[Any]:
        rollouts = collect(restless, Told(by_seed, Random()), samples=SAMPLES, trajectories=3, seed=seed, **more)
        return [(r.sample, r.turns, r.outcome, r.observations) for r in rollouts]

    first = played(5)
    assert played(5, **settings) == first
    texts = [turn.completion.text for _, turns, *_ in first for turn in turns]
    assert len(texts) == len(set(texts)) == 3 * 3 * 3
    assert played(6, **settings) != first


@pytest.mark.parametrize("workers", [0, 1])
def test_a_play_that_thinks_holds_up_neither_other_trees_nor_its_siblings(workers: int) -> None:
    ended, lock, first, others = threading.Event(), threading.Lock(), [True], [1, 2, 3]

    def play(client: Client, sample: Sample) -> float:
        say(client, "a", "?")
        with lock:
            thinks, first[:] = bool(first), []
        if thinks:  # until all the others, which have calls to make, are through
            assert ended.wait(20)
        say(client, "b", "?")
        with lock:
            if not thinks:
                others.pop()
            if not others:
                ended.set()
        return 0.0

    assert [len(r.turns) for r in collect(play, samples=SAMPLES[:2], trajectories=2, workers=workers)] == [4, 4]


def test_no_more_plays_run_at_once_than_were_asked_for() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def play(client: Client, sample: Sample) -> float:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        say(client, "a", "?")
        time.sleep(0.01)
        with lock:
            running[0] -= 1
        return 1.0

    rollouts = collect(play, samples=SAMPLES, trajectories=4, plays=2)
    assert [len(r.turns) for r in rollouts] == [4, 4, 4]
    assert most == [2]


def test_an_async_play_is_awaited() -> None:
    async def play(client: Client, sample: Sample) -> float:
        texts = await asyncio.gather(*(asyncio.to_thread(say, client, role, "?") for role in "ab"))
        return float(len(texts))

    (rollout,) = collect(play, trajectories=1)
    assert [(turn.key.agent, turn.rewards.credit) for turn in rollout.turns] == [("a", 2.0), ("b", 2.0)]


def crash(client: Client, sample: Sample) -> float:
    return 1 / (len(sample.id) - 2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("play", "message"),
    [
        (crash, "sample 's1', trajectory 0: ZeroDivisionError"),
        (lambda client, sample: None, "play returned None, expected a finite number"),
        (lambda client, sample: math.nan, "play returned nan"),
        (lambda client, sample: exit(), "SystemExit"),
        (lambda client, sample: say(client, "c", "?"), "HTTP Error 404: model: got 'c', expected a role: a, b"),
        (lambda client, sample: Result(1.0, local={"a-0": 1.0}), "got 'a-0', expected ids of this play's calls"),
        (lambda client, sample: Result(1.0, local={"a-0": 1.0, 1: 2.0}), "expected a mapping of ids"),  # type: ignore[dict-item]
        (lambda client, sample: Result(1.0, success=2.0), "Result.success=2.0, expected 0 to 1"),
    ],
    ids=["crash", "none", "nan", "exit", "role", "strange-local", "mixed-local", "success"],
)
def test_an_error_of_the_play_stops_the_run(play: Callable[..., Any], message: str, workers: int) -> None:
    with pytest.raises(PlayError, match=message):
        collect(play, samples=[Sample("s1", "p", "!")], trajectories=1, workers=workers)


def test_where_one_play_fails_the_others_are_told_and_end() -> None:
    started, told, first = threading.Barrier(2), threading.Event(), [True]

    def play(client: Client, sample: Sample) -> float:
        fails = bool(first and first.pop())
        started.wait(20)
        if fails:
            raise KeyError("mine")
        try:
            while True:
                say(client, "a", "?")
        except HTTPError as error:
            if error.code in (401, 503):
                told.set()
            raise

    with pytest.raises(PlayError, match="KeyError: 'mine'"):
        collect(play, turns=10**6)
    assert told.wait(20)


def test_an_overlong_prompt_ends_a_play_with_nothing_or_as_it_says() -> None:
    def play(client: Client, sample: Sample) -> float:
        say(client, "a", "12345")
        try:
            say(client, "b", "123456")
        except HTTPError as error:
            assert "got 6 tokens, expected at most max_prompt_tokens=5" in str(error)
            if sample.id == "s0":
                raise
        return 0.25

    lost, caught = collect(play, samples=SAMPLES[:2], trajectories=1, max_prompt_tokens=5)
    assert [(r.overlong, r.outcome, len(r.turns)) for r in (lost, caught)] == [(True, 0.0, 1), (True, 0.25, 1)]
    assert [r.turns[0].rewards.credit for r in (lost, caught)] == [0.0, 0.25]


def test_one_call_too_many_ends_a_play_with_nothing_or_as_it_says(caplog: pytest.LogCaptureFixture) -> None:
    def play(client: Client, sample: Sample) -> float:
        try:
            for _ in "123":
                say(client, "a", "?")
        except HTTPError as error:
            assert "got call 3 of 'a', expected at most sampler.turns=2" in str(error)
            if sample.id == "s0":
                raise
        return 0.25

    _tell_once.cache_clear()
    lost, caught = collect(play, samples=SAMPLES[:2], trajectories=1)
    assert [(r.overlong, r.outcome, len(r.turns)) for r in (lost, caught)] == [(False, 0.0, 2), (False, 0.25, 2)]
    assert [turn.rewards.credit for r in (lost, caught) for turn in r.turns] == [0.0, 0.0, 0.25, 0.25]
    assert caplog.text.count("more than sampler.turns=2 calls of one agent") == 1


def test_an_error_after_a_call_that_was_answered_is_the_plays_own_again() -> None:
    def play(client: Client, sample: Sample) -> float:
        with pytest.raises(HTTPError, match="max_prompt_tokens"):
            say(client, "a", "123456")
        say(client, "a", "1")
        raise KeyError("mine")

    with pytest.raises(PlayError, match="KeyError: 'mine'"):
        collect(play, max_prompt_tokens=5)


def test_a_refused_agent_counts_whatever_the_other_was_answered_at_the_same_time() -> None:
    def play(client: Client, sample: Sample) -> float:
        try:
            say(client, "a", "123456")
        finally:
            say(client, "b", "1")  # as one that runs beside it would be
        return 1.0

    (rollout,) = collect(play, max_prompt_tokens=5)
    assert (rollout.outcome, [turn.key.agent for turn in rollout.turns]) == (0.0, ["b", "b"])


def test_a_play_that_changes_its_sample_changes_nothing_for_others() -> None:
    def play(client: Client, sample: Sample) -> float:
        say(client, "a", "?")
        return float(len(sample.meta["tests"].pop()))

    sample = Sample("s0", "p", "!", {"tests": ["abc"]})
    (rollout,) = collect(play, samples=[sample], trajectories=3, plays=1)
    assert [turn.rewards.credit for turn in rollout.turns] == [3.0, 3.0, 3.0]
    assert rollout.sample.meta["tests"] == ["abc"]


def test_max_tokens_lowers_the_samplers_and_never_raises_it() -> None:
    def play(client: Client, sample: Sample) -> float:
        say(client, "a", "?", max_tokens=3)
        say(client, "a", "?", max_completion_tokens=99)
        say(client, "b", "?", max_tokens=4, max_completion_tokens=2)
        return 0.0

    engine = Told(lambda request, i: "sevenfold")
    (rollout,) = collect(play, engine, trajectories=1, max_tokens={"a": 5, "b": 7})
    assert [request.sampling.max_tokens for request in engine.asked] == [3, 5, 2]
    assert [(t.key.agent, t.key.turn, len(t.completion.token_ids)) for t in rollout.turns] == [
        ("a", 0, 3),
        ("b", 0, 2),
        ("a", 1, 5),
    ]
    assert [prompt_of(request) for request in engine.asked] == ["?"] * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plays": 0}, "got plays=0, expected at least 1"),
        ({"order": "parallel"}, "got order='parallel', expected none: env.play says who acts"),
        ({"credit": "backup"}, "need sampler=tree"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EndpointSampler(**settings)
