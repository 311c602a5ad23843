from __future__ import annotations

from collections.abc import Sequence
from random import Random
from unittest.mock import Mock

import pytest

from atgrpo.engines.base import EngineLostError
from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.collector import Collector
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.samplers import Sampler
from atgrpo.rollout.tree import TreeSampler
from atgrpo.types import Completion, Request, Rollout, Sample
from tests.rollout.helpers import AGENTS, Script, Tally, answer, prompt_of, render

SAMPLES = [Sample(f"s{i}", "?", "!", {"goal": 0 if i == 2 else 6}) for i in range(6)]
SAMPLERS = [
    TreeSampler(turns=2, branches=3),
    TreeSampler(turns=2, branches=2, credit="continuation", train_continuations=True),
    ParallelSampler(turns=2, trajectories=3, order="parallel"),
]


def drawn(request: Request, i: int) -> str:
    """A response that depends on the seed alone, as a real engine's does."""
    return f"{Random(request.seed + i).randrange(4)}/0.{Random(-request.seed - i).randrange(10)}"


class Shuffled:
    """Finishes one request per step: of those queued, the one that ``rank`` puts first."""

    def __init__(self, rank: Random | None = None, last: str = "") -> None:
        self.rank = rank
        self.last = last
        self.asked: list[Request] = []
        self.queue: list[tuple[int, Request]] = []

    def submit(self, ticket: int, request: Request) -> None:
        self.asked.append(request)
        self.queue.append((ticket, request))

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        if not self.queue:
            return []
        if self.rank:
            self.rank.shuffle(self.queue)
        self.queue.sort(key=lambda item: prompt_of(item[1]) == self.last)
        ticket, request = self.queue.pop(0)
        return [(ticket, [answer(request, i, drawn) for i in range(request.n)])]


def collect(engine: object, sampler: Sampler, *, workers: int = 0, seed: int = 5, **more: object) -> list[Rollout]:
    collector = Collector(engine, Tally, AGENTS, render, 1000, workers)  # type: ignore[arg-type]
    return collector.collect(SAMPLES, sampler, seed=seed, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 4])
def test_rollouts_depend_neither_on_the_engines_order_nor_on_threads(sampler: Sampler, workers: int) -> None:
    expected = collect(Shuffled(), sampler)
    assert [rollout.sample for rollout in expected] == SAMPLES
    for order in range(3):
        assert collect(Shuffled(Random(order)), sampler, workers=workers) == expected


def test_the_seed_decides() -> None:
    sampler = SAMPLERS[0]
    assert collect(Shuffled(), sampler) == collect(Shuffled(), sampler)
    assert collect(Shuffled(), sampler, seed=6) != collect(Shuffled(), sampler)


def test_every_tree_draws_for_itself_under_the_number_it_is_given() -> None:
    engine = Shuffled()
    rollouts = collect(engine, TreeSampler(turns=1, branches=2), trees=range(10, 16))
    assert [rollout.tree for rollout in rollouts] == [10, 11, 12, 13, 14, 15]
    assert all(turn.key.tree == rollout.tree for rollout in rollouts for turn in rollout.turns)
    assert len({request.seed for request in engine.asked}) == len(engine.asked) == 10
    shifted = collect(Shuffled(), TreeSampler(turns=1, branches=2), trees=range(11, 17))
    texts = [[turn.completion.text for turn in rollout.turns] for rollout in shifted]
    assert texts[3] == [turn.completion.text for turn in rollouts[4].turns]


class Named(Tally):
    """Its prompts say which sample they belong to."""

    def reset(self, sample: Sample) -> None:
        super().reset(sample)
        self.log = [(sample.id, 0.0)]


def test_a_slow_request_of_one_tree_holds_up_no_other() -> None:
    engine, done = Shuffled(last="a:s00"), []
    collector = Collector(engine, Named, AGENTS, render, 1000)  # type: ignore[arg-type]
    samples = [Sample(f"s{i}", "?", "!") for i in range(3)]
    sampler = TreeSampler(turns=2, branches=2)
    collector.collect(samples, sampler, seed=0, on_done=lambda: done.append(len(engine.asked)))
    trees = [prompt_of(request).split(":s")[1][0] for request in engine.asked]
    assert trees == list("012" + "121212" + "000")
    assert done == [9, 9, 12]


def test_nothing_to_play_asks_nothing() -> None:
    engine, done = Shuffled(), Mock()
    collector = Collector(engine, Tally, AGENTS, render, 1000)  # type: ignore[arg-type]
    over = [Sample("s", "?", "!", {"goal": 0})]
    assert [r.turns for r in collector.collect(over, SAMPLERS[0], seed=0, on_done=done)] == [()]
    assert collector.collect([], SAMPLERS[0], seed=0) == []
    assert engine.asked == []
    done.assert_called_once_with()


class Crash(Tally):
    def step(self, agent: str, action: object) -> object:
        raise RuntimeError("our own fault")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fault_in_an_environment_stops_the_run(workers: int) -> None:
    collector = Collector(Shuffled(), Crash, AGENTS, render, 1000, workers)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="our own fault"):
        collector.collect(SAMPLES, SAMPLERS[0], seed=0)


class Mortal(Shuffled):
    """Is lost after so many steps, every time that it is started until there is no number left."""

    def __init__(self, *lives: int) -> None:
        super().__init__()
        self.lives = [*lives, 10**6]
        self.restarts = 0

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        if not self.lives[0]:
            raise EngineLostError("the engine died")
        self.lives[0] -= 1
        return super().step()

    def restart(self) -> None:
        self.restarts += 1
        self.queue, self.lives = [], self.lives[1:]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("life", [0, 9])
def test_a_lost_engine_changes_no_tree(sampler: Sampler, workers: int, life: int) -> None:
    engine, done = Mortal(life), Mock()
    assert collect(engine, sampler, workers=workers, on_done=done) == collect(Shuffled(), sampler)
    assert (engine.restarts, done.call_count) == (1, len(SAMPLES))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_an_engine_may_be_lost_after_every_tree(sampler: Sampler) -> None:
    engine = Mortal()

    def kill() -> None:
        engine.lives.insert(0, 0)

    assert collect(engine, sampler, on_done=kill) == collect(Shuffled(), sampler)
    assert engine.restarts == len(SAMPLES) - 1


def test_trees_that_were_finished_are_kept_and_the_loss_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    # Two samples of one node each; the second tree is cut off before its answer.
    engine = Mortal(1)
    samplers = TreeSampler(turns=1, branches=2)
    collector = Collector(engine, Tally, {"a": "pa"}, render, 1000)  # type: ignore[arg-type]
    collector.collect([Sample("x", "?", "!"), Sample("y", "?", "!")], samplers, seed=0)
    first, second, again = engine.asked
    assert (again == second) and again != first
    assert capsys.readouterr().out == "the engine died; started again, 1 of 2 trees are grown anew\n"


def test_an_engine_that_is_lost_again_before_a_tree_is_finished_stops_the_run() -> None:
    engine = Mortal(9, 3)
    with pytest.raises(EngineLostError, match="the engine died"):
        collect(engine, TreeSampler(turns=4, branches=3))
    assert engine.restarts == 1


def test_an_engine_that_cannot_be_restarted_stops_the_run() -> None:
    class Fixed(Shuffled):
        def step(self) -> Sequence[tuple[int, list[Completion]]]:
            raise EngineLostError("the engine died")

    with pytest.raises(EngineLostError, match="the engine died"):
        collect(Fixed(), SAMPLERS[0])


@pytest.mark.parametrize("reply", ["nan/0", "0/nan", "0/inf"])
def test_a_reward_that_is_no_number_stops_the_run_as_a_missing_one_is_none(reply: str) -> None:
    engine = ScriptedEngine({"pa": model_folder("tiny")}, script=lambda request, i: reply)
    collector = Collector(engine, Tally, {"a": "pa"}, lambda *_: (5,), 1000)
    with pytest.raises(ValueError, match=r"Tally\.step got rewards .*, expected finite numbers, or None"):
        collector.collect(SAMPLES[:1], SAMPLERS[0], seed=0)


def test_what_is_recorded_is_what_the_engine_was_asked_and_sampled() -> None:
    from transformers import AutoTokenizer

    folder = model_folder("tiny")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    script: Script = drawn
    engine = ScriptedEngine(models={"pa": folder, "pb": folder}, script=script)

    def chat(policy: str, messages: Sequence[object]) -> tuple[int, ...]:
        ids = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return tuple(ids)

    collector = Collector(engine, Tally, AGENTS, chat, 1000)
    [rollout] = collector.collect(SAMPLES[:1], TreeSampler(turns=2, branches=2, max_tokens=4), seed=0)
    asked = [request.prompt_ids for request in engine.requests for _ in range(request.n)]
    assert [turn.prompt_ids for turn in rollout.turns] == asked
    for turn in rollout.turns:
        assert tokenizer.decode(turn.completion.token_ids) == turn.completion.text
        assert len(turn.completion.logprobs) == len(turn.completion.token_ids) == 4
        assert turn.completion.finish_reason == "length"
