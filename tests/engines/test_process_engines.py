"""The real engines in a process of their own, and rollouts that survive its death."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from atgrpo.engines.base import Engine, EngineLostError, generate
from atgrpo.engines.process import ProcessEngine
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.ranks import Ranks
from atgrpo.rollout.collector import Collector
from atgrpo.rollout.tree import TreeSampler
from atgrpo.types import Message, Rollout, Sample
from tests.cli.letters import Letters
from tests.engines.helpers import LONG_PROMPT, ask, gap, ids

REQUESTS = [ask(), ask("untied", LONG_PROMPT, n=5), ask(temperature=0.7, seed=9)]
SAMPLES = [Sample(f"s{i}", "abc"[i], "!") for i in range(3)]
BRANCHES = 3
# One batch per node: what else is under way then does not move the last digit of a log-prob.
START = partial(TransformersEngine, batch_size=BRANCHES, device="cpu")


@pytest.fixture(scope="module")
def child(folders: Mapping[str, Path]) -> Iterator[ProcessEngine]:
    engine = ProcessEngine(START, folders, ranks=Ranks())
    yield engine
    engine.close()


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def test_transformers_answers_bit_for_bit_and_the_trainers_random_numbers_stay(
    child: ProcessEngine,
    folders: Mapping[str, Path],
    trainers: Mapping[str, LlamaForCausalLM],
    perturb: Callable[[torch.nn.Module], None],
) -> None:
    inside = START(folders)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    expected = draws()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    assert generate(child, REQUESTS) == (before := generate(inside, REQUESTS))
    assert draws() == expected
    for policy, model in trainers.items():
        perturb(model)
        child.load_weights(policy, model.state_dict().items())  # with the tied head
        inside.load_weights(policy, model.named_parameters())
    assert generate(child, REQUESTS) == generate(inside, REQUESTS) != before
    assert (child.name, child.exact) == ("transformers (float32, cpu), own process", True)


def test_vllm_serves_what_was_pushed_and_nothing_of_it_is_imported_here(
    folders: Mapping[str, Path], trainers: Mapping[str, LlamaForCausalLM], perturb: Callable[[torch.nn.Module], None]
) -> None:
    modules = {name for name in sys.modules if name.startswith("vllm")}
    start = partial(VLLMEngine, dtype="float32", max_model_len=256, kv_cache_gb=0.03, enforce_eager=True)
    core = min(os.sched_getaffinity(0))
    engine = ProcessEngine(start, {"tied": folders["tied"]}, ranks=Ranks(), cores=[core])
    assert engine.name.startswith("vllm 0.") and engine.name.endswith("(float32, cpu), own process")
    perturb(trainers["tied"])
    engine.load_weights("tied", trainers["tied"].named_parameters())
    [completions] = generate(engine, [ask()])
    assert gap(trainers["tied"], ask(), completions) < 1e-4
    [again] = generate(engine, [ask()])
    assert ids(again) == ids(completions)
    assert set(engine.stats()) == {"prefix_cache_hit_rate"}
    threads = [int(thread.name) for thread in Path(f"/proc/{engine.pid}/task").iterdir()]
    assert {core for thread in threads for core in os.sched_getaffinity(thread)} == {core}
    engine.close()
    assert {name for name in sys.modules if name.startswith("vllm")} == modules


def collect(engine: Engine, on_done: Callable[[], object] = lambda: None) -> list[Rollout]:
    def render(policy: str, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(4 + ord(letter) % 90 for letter in messages[-1]["content"])

    collector = Collector(engine, Letters, {"tool": "tied", "reasoner": "untied"}, render, 1000)
    return collector.collect(SAMPLES, TreeSampler(turns=2, branches=BRANCHES, max_tokens=6), seed=1, on_done=on_done)


def test_a_child_killed_while_trees_grow_changes_nothing_in_them(
    child: ProcessEngine, trainers: Mapping[str, LlamaForCausalLM], perturb: Callable[[torch.nn.Module], None]
) -> None:
    for policy, model in trainers.items():
        perturb(model)
        child.load_weights(policy, model.named_parameters())
    undisturbed, pids = collect(child), []

    def kill() -> None:
        if not pids:
            os.kill(child.pid, signal.SIGKILL)
        pids.append(child.pid)

    assert collect(child, on_done=kill) == undisturbed
    assert len(pids) == 3 and pids[0] != pids[1] == pids[2]
    assert sum(len(rollout.turns) for rollout in undisturbed) == 3 * 2 * 2 * BRANCHES


def test_a_child_that_dies_again_at_once_ends_the_run(child: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    restart = child.restart

    def frail() -> None:
        restart()
        os.kill(child.pid, signal.SIGKILL)

    monkeypatch.setattr(child, "restart", frail)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(EngineLostError, match="died, exit code -9"):
        collect(child)
