"""An engine in its own process: same answers, nothing shared with the trainer, and a death that can be survived."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from atgrpo.engines import process
from atgrpo.engines.base import Engine, EngineError, EngineLostError, Restartable, generate
from atgrpo.engines.process import ProcessEngine
from atgrpo.engines.process_child import child_environment
from atgrpo.ranks import Ranks
from atgrpo.scratch import PREFIX
from tests.engines.helpers import ask
from tests.engines.light import CRASH, DIE, HANG, SLOW, Light

CORE = min(os.sched_getaffinity(0))
ONE = [("w", torch.tensor([1.0, 2.0]))]
TWO = [("w", torch.tensor([3.0, 4.0]))]


@pytest.fixture(scope="module")
def shared() -> Iterator[ProcessEngine]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PET_NNODES"):
            patch.setenv(name, "1")
        patch.setenv("MY_RANK", "kept")
        engine = ProcessEngine(Light, {"p": "f", "q": "g"}, ranks=Ranks(), cores=[CORE], adapters={"p": Path("a")})
    yield engine
    engine.close()


@pytest.fixture
def light(shared: ProcessEngine) -> ProcessEngine:
    """A child that was just given its weights, alive whatever the test before did."""
    try:
        shared.stats()
    except EngineLostError:
        shared.restart()
    shared.load_weights("p", ONE)
    shared.load_weights("q", ONE)
    return shared


def facts(engine: Engine) -> dict[str, Any]:
    [[completion]] = generate(engine, [ask("p")])
    found: dict[str, Any] = json.loads(completion.text)
    return found


def files() -> set[Path]:
    return {*Path("/dev/shm").glob(f"{PREFIX}weights-{os.getpid()}-*/*")}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_is_an_engine_that_can_be_restarted_and_is_named_after_the_one_inside(light: ProcessEngine) -> None:
    assert isinstance(light, Engine) and isinstance(light, Restartable)
    assert (light.name, light.exact) == ("light, own process", True)


def test_the_child_is_no_rank_and_keeps_to_its_cores(light: ProcessEngine) -> None:
    found = facts(light)
    names = set(found["environment"])
    assert not names & {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PET_NNODES"}
    assert found["environment"]["MY_RANK"] == "kept"
    assert found["environment"]["VLLM_CPU_NUM_OF_RESERVED_CPU"] == "0"
    assert (found["cores"], found["threads"]) == ([CORE], 1)


def test_models_and_further_arguments_reach_the_start(light: ProcessEngine) -> None:
    assert facts(light)["models"] == {"p": "f", "q": "g"}
    assert facts(light)["rest"] == {"adapters": {"p": "a"}}
    with pytest.raises(ValueError, match=r"start: got .*lambda.*, expected what can be pickled"):
        ProcessEngine(lambda models: Light(models), {}, ranks=Ranks())
    with pytest.raises(ValueError, match="expected what can be pickled"):
        ProcessEngine(Light, {}, ranks=Ranks(), adapters=(p for p in ()))


@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [(None, 3, "3"), ("4, 6", 1, "6"), ("GPU-a,GPU-b,GPU-c", [0, 2], "GPU-a,GPU-c"), ("5", None, "5")],
)
def test_a_device_is_counted_among_those_visible_here(visible: str | None, device: Any, seen: str) -> None:
    own = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert child_environment(own, None, device)["CUDA_VISIBLE_DEVICES"] == seen


def test_a_device_that_is_not_visible_is_refused() -> None:
    with pytest.raises(ValueError, match="device: got 2, expected less than the 2"):
        child_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, None, 2)
    assert child_environment({"A": "b"}, None, None) == {"A": "b"}


def test_pushed_weights_are_served_and_only_the_latest_are_kept(light: ProcessEngine) -> None:
    tied = torch.arange(4.0).reshape(2, 2)
    light.load_weights("p", iter([("w", tied.T), ("head", tied.T), ("again", tied), ("half", tied.bfloat16())]))
    expected = {"w": [0, 2, 1, 3], "head": [0, 2, 1, 3], "again": [0, 1, 2, 3], "half": [0, 1, 2, 3]}
    assert facts(light)["weights"] == {"p": expected, "q": {"w": [1, 2]}}
    assert sorted(file.name for file in files()) == ["weights.safetensors"] * 2


def test_a_push_that_does_not_fit_is_walked_to_its_end_and_the_next_one_is_taken(light: ProcessEngine) -> None:
    names = iter(["unknown", "w"])
    with pytest.raises(EngineError, match=r"^unknown is unknown to the model$"):
        light.load_weights("p", ((name, torch.ones(1)) for name in names))
    assert list(names) == []
    light.load_weights("p", TWO)
    assert facts(light)["weights"]["p"] == {"w": [3, 4]}
    with pytest.raises(ValueError, match=r"got policy 'x', expected one of \['p', 'q'\]"):
        light.load_weights("x", ONE)


def test_weights_handed_over_one_by_one_are_the_same_and_leave_nothing_to_start_again_from() -> None:
    engine = ProcessEngine(Light, {"p": "f"}, ranks=Ranks(), transfer="ipc")
    before = files()
    engine.load_weights("p", iter([("w", torch.tensor([1.0, 2.0])), ("half", torch.ones(2).bfloat16())]))
    assert facts(engine)["weights"] == {"p": {"w": [1, 2], "half": [1, 1]}}
    names = iter(["unknown", "w"])
    with pytest.raises(EngineError, match=r"^unknown is unknown to the model$"):
        engine.load_weights("p", ((name, torch.ones(1)) for name in names))
    assert list(names) == []
    engine.load_weights("p", TWO)
    assert (facts(engine)["weights"], files()) == ({"p": {"w": [3, 4]}}, before)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineLostError):
        generate(engine, [ask("p")])
    with pytest.raises(EngineLostError, match="transfer=ipc left no weights"):
        engine.restart()
    engine.close()


def test_a_refused_request_is_reported_by_the_next_step_and_the_others_go_on(light: ProcessEngine) -> None:
    light.submit(0, ask("p"))
    light.submit(1, ask("p", n=0))
    light.submit(2, ask("p"))
    with pytest.raises(ValueError, match=r"^request got n=0$"):
        light.step()
    done: list[int] = []
    while len(done) < 2:
        done += [ticket for ticket, _ in light.step()]
    assert done == [0, 2]
    assert light.step() == []


def test_a_fault_inside_is_one_line_here_and_a_traceback_there(light: ProcessEngine, capfd: Any) -> None:
    light.restart()  # what it prints goes to where its parent's standard error was when it started
    with pytest.raises(EngineError, match=r"^LookupError: no such token$") as caught:
        generate(light, [ask("p", CRASH)])
    assert not isinstance(caught.value, EngineLostError)
    assert "Traceback" in (error := capfd.readouterr().err) and "light.py" in error


def test_requests_join_while_others_run_and_no_answer_is_lost_in_between(light: ProcessEngine) -> None:
    # More than a socket holds, in both directions at once.
    long = (*SLOW, *range(1000, 101_000))
    before = light.stats()
    light.submit(0, ask("p", long))
    assert light.step() == []
    light.submit(1, ask("p", long))
    assert light.step() == []
    light.sleep()
    light.wake()
    assert light.stats() == {"sleep": before.get("sleep", 0) + 1, "wake": before.get("wake", 0) + 1}
    done: dict[int, Any] = {}
    while len(done) < 2:
        done.update(light.step())
    assert [done[i][0].token_ids == long for i in (0, 1)] == [True, True]


def test_signals_to_the_group_do_not_stop_the_child(light: ProcessEngine) -> None:
    pid = light.pid
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    assert facts(light)["weights"]["p"] == {"w": [1, 2]}
    assert light.pid == pid


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_lost_child_is_one_error_until_it_is_restarted_with_its_weights(light: ProcessEngine, how: str) -> None:
    pid = light.pid
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    light.submit(0, ask("p", DIE))
    code = -9 if how == "killed" else 7
    for _ in range(2):
        with pytest.raises(EngineLostError, match=f"^engine process {pid} died, exit code {code}$"):
            while True:
                light.step()
    light.restart()
    assert light.pid != pid
    assert facts(light)["weights"] == {"p": {"w": [1, 2]}, "q": {"w": [1, 2]}}
    assert light.step() == []


def test_a_silent_child_is_given_up(light: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light, "_timeout", 0.5)
    light.submit(0, ask("p", HANG))
    with pytest.raises(EngineLostError, match=r"did not answer for \d+ s and was killed, exit code -9"):
        while True:
            light.step()
    assert gone(light.pid)


def test_a_loss_during_a_push_or_asleep_is_survived_once(light: ProcessEngine, capsys: Any) -> None:
    os.kill(light.pid, signal.SIGKILL)
    light.load_weights("p", TWO)
    assert facts(light)["weights"] == {"p": {"w": [3, 4]}, "q": {"w": [1, 2]}}
    os.kill(light.pid, signal.SIGKILL)
    light.wake()
    assert facts(light)["weights"] == {"p": {"w": [3, 4]}, "q": {"w": [1, 2]}}
    assert capsys.readouterr().out.count("died, exit code -9; started again\n") == 2
    with pytest.raises(EngineLostError, match="exit code 8"):
        light.load_weights("p", [("deadly", torch.ones(1))])
    light.load_weights("p", ONE)
    assert facts(light)["weights"]["p"] == {"w": [1, 2]}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("error", "engine did not start: LookupError: no model of that kind"),
        ("ours", "engine did not start: the folder is empty"),
        ("death", r"engine process \d+ died, exit code -9"),
    ],
)
def test_a_failed_start_is_one_line(fault: str, message: str, capfd: Any) -> None:
    before = files()
    with pytest.raises(EngineError, match=f"^{message}$"):
        ProcessEngine(Light, {"p": "f"}, ranks=Ranks(), fault=fault)
    assert ("Traceback" in capfd.readouterr().err) == (fault != "death")
    assert files() == before


def test_closing_lets_the_inner_engine_close_and_may_be_repeated(tmp_path: Path) -> None:
    engine = ProcessEngine(Light, {"p": "f"}, ranks=Ranks(), mark=str(tmp_path / "mark"))
    before = files()
    engine.load_weights("p", ONE)
    assert len(files() - before) == 1
    engine.close()
    engine.close()
    assert (tmp_path / "mark").read_text() == "closed"
    assert gone(engine.pid) and files() == before


def test_a_child_that_does_not_listen_is_closed_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CLOSE_S", 0.2)
    engine = ProcessEngine(Light, {"p": "f"}, ranks=Ranks())
    engine.submit(0, ask("p", HANG))
    engine.step()
    engine.close()
    assert gone(engine.pid)
