from __future__ import annotations

import os
from functools import partial

import pytest
import torch

from atgrpo.engines.base import Engine, EngineError
from atgrpo.engines.placement import IdleEngine, OwnProcess
from atgrpo.engines.process import ProcessEngine
from atgrpo.ranks import ONE, Ranks
from atgrpo.types import Request, Sampling


def start(models: object) -> Engine:
    raise AssertionError


def place(local_rank: int, size: int) -> partial[Engine]:
    ranks = Ranks(rank=8 + local_rank, size=16, local_rank=local_rank, local_size=8, leader=8)
    found = OwnProcess().place(start, ranks, gpu=local_rank, tensor_parallel_size=size)
    assert isinstance(found, partial)
    return found


def test_every_rank_has_an_engine_on_its_own_gpu() -> None:
    for local_rank in range(8):
        found = place(local_rank, 1)
        assert found.func is ProcessEngine
        assert (found.keywords["device"], found.keywords["cores"]) == ([local_rank], None)


def test_an_engine_of_two_gpus_takes_those_of_two_ranks() -> None:
    assert [place(r, 2).func for r in range(4)] == [ProcessEngine, IdleEngine, ProcessEngine, IdleEngine]
    assert [place(r, 2).keywords["device"] for r in (0, 2, 6)] == [[0, 1], [2, 3], [6, 7]]


def test_ranks_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(ValueError, match="got 3, expected a divisor of the 8 processes"):
        place(0, 3)


def test_without_gpus_an_engine_shares_the_cores_of_its_rank() -> None:
    found = OwnProcess().place(start, ONE, gpu=None, tensor_parallel_size=1)
    assert isinstance(found, partial)
    assert (found.keywords["device"], found.keywords["cores"]) == (None, sorted(os.sched_getaffinity(0)))


def test_an_idle_engine_walks_the_weights_and_answers_nothing() -> None:
    engine = IdleEngine({}, ranks=ONE, transfer="file")
    assert isinstance(engine, Engine)
    seen = []

    def weights() -> object:
        for name in ("a", "b"):
            seen.append(name)
            yield name, torch.zeros(1)

    engine.load_weights("p", weights())  # type: ignore[arg-type]
    assert (seen, engine.step()) == (["a", "b"], [])
    with pytest.raises(EngineError, match="without an engine of its own"):
        engine.submit(0, Request("p", (1,), 1, Sampling(max_tokens=1), 0))
