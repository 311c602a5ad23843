"""What a trainer of one or two ranks sees of its engines' processes."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from atgrpo.engines.weight_files import WeightFiles

TRAINER = """
import sys, time, torch
from atgrpo.engines.process import ProcessEngine
from atgrpo.ranks import Ranks
from tests.engines.light import Light

engine = ProcessEngine(Light, {"p": "f"}, ranks=Ranks())
engine.load_weights("p", [("w", torch.ones(1))])
print(engine.pid, engine._files["p"], "vllm" in sys.modules, torch.distributed.is_initialized(), flush=True)
time.sleep(1000)
"""


def test_a_killed_trainer_leaves_no_child_and_its_files_go_with_the_next_start() -> None:
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True)
    assert trainer.stdout is not None
    pid, file, *imported = trainer.stdout.readline().split()
    assert imported == ["False", "False"]
    child = os.pidfd_open(int(pid))
    WeightFiles()
    assert Path(file).is_file()
    trainer.kill()
    trainer.communicate()
    assert select.select([child], [], [], 200)[0] == [child], "the child lives on"
    os.close(child)
    WeightFiles()
    assert not Path(file).parent.exists()


RANK = """
import json, os, sys, torch, torch.distributed as dist
from atgrpo.engines.base import EngineError, generate
from atgrpo.engines.process import ProcessEngine
from atgrpo.ranks import Ranks
from tests.engines.helpers import ask
from tests.engines.light import Light

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
ranks = Ranks.current()
engine = ProcessEngine(Light, {"p": "f"}, ranks=ranks, refuses=[5.0] if rank else None)
names = []

def weights(value, name="w"):
    for i in range(2):
        names.append(i)
        yield f"{name}{i}" if i else name, torch.full((1,), value)

def served():
    return json.loads(generate(engine, [ask("p")])[0][0].text)["weights"]["p"]

engine.load_weights("p", weights(1.0 + rank))
first = served()
if rank == 1:
    os.kill(engine.pid, 9)
engine.load_weights("p", weights(3.0 + rank))
second = served()
failures = []
try:
    engine.load_weights("p", weights(5.0))
except EngineError as error:
    failures.append(str(error))
print(json.dumps([first, second, failures, len(names), os.path.exists(engine._files["p"])]), flush=True)
dist.barrier()
engine.close()
dist.barrier()
print(os.path.exists(engine._files["p"]), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_both_children_get_the_leaders_weights_and_failures_are_shared(free_port: str) -> None:
    own = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}
    both = [
        subprocess.Popen([sys.executable, "-c", RANK], env=own | {"RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    outputs = [rank.communicate(timeout=280)[0].splitlines() for rank in both]
    assert [rank.returncode for rank in both] == [0, 0]
    expected = [{"w": [1], "w1": [1]}, {"w": [3], "w1": [3]}]
    assert json.loads(outputs[0][0]) == [*expected, ["rank 1: not I"], 6, True]
    assert json.loads(outputs[1][-2]) == [*expected, ["rank 1: not I"], 6, True]
    assert [lines[-1] for lines in outputs] == ["False", "False"]
