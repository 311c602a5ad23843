from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from atgrpo.cli.config import find_recipe, load
from atgrpo.cli.main import main
from atgrpo.cli.runs import CHECKPOINTS
from atgrpo.ranks import ONE
from atgrpo.training.callbacks import return_to_best
from atgrpo.training.callbacks.checkpoint import IterationCheckpoint, saved_iterations
from atgrpo.training.callbacks.heldout import HeldOut
from atgrpo.training.callbacks.return_to_best import ReturnToBest, checkpoint_of
from atgrpo.training.datamodule import Iteration
from tests.cli.test_fsdp import SETTINGS, TWO, assert_close, finish, saved, start
from tests.cli.test_resume import assert_equal
from tests.rollout.helpers import make_rollout
from tests.training.callbacks.levels import scripted
from tests.training.runs import fit

LEARNED = ("state_dict", "optimizer_states", "lr_schedulers")


class Judged:
    """A run whose checkpoints are all written and whose successes are given; notes where it went back to."""

    def __init__(self, callback: ReturnToBest, monkeypatch: pytest.MonkeyPatch, *, every: int = 1) -> None:
        self.callback, self.checkpoint = callback, IterationCheckpoint()
        self.returns: list[tuple[int, str]] = []
        """(after which iteration, to which checkpoint)."""
        self.data = SimpleNamespace(finished=0, heldout_success={}, latest=Iteration(), ranks=ONE)
        self.trainer: Any = SimpleNamespace(
            datamodule=self.data,
            checkpoint_callbacks=[self.checkpoint],
            callbacks=[callback, HeldOut(every=every)],
            logger=None,
        )
        monkeypatch.setattr(return_to_best, "restore", self.restore)
        callback.on_train_start(self.trainer, None)

    def restore(self, trainer: Any, state: Path) -> None:
        self.returns.append((self.data.finished, state.parent.name))

    def see(self, *successes: float | None) -> list[tuple[int, str]]:
        for success in successes:
            self.data.finished += 1
            if success is not None:
                self.data.heldout_success[self.data.finished] = success
                self.data.latest = Iteration(self.data.finished - 1, [make_rollout(outcome=success)])
            self.callback.on_train_epoch_end(self.trainer, Mock())
            self.checkpoint.saved = self.data.finished
        return self.returns


@pytest.mark.parametrize(
    ("patience", "successes", "returns"),
    [
        (1, [0.5, 0.7, 0.51, 0.9], []),
        (1, [0.5, 0.7, 0.5], [(3, "iteration_00002")]),  # .7 - .5 is a little less than .2
        (1, [0.7, 0.5, 0.7, 0.5], [(2, "iteration_00001"), (4, "iteration_00003")]),  # of equal ones the newest
        (2, [0.9, 0.1, 0.8, 0.1, 0.1], [(5, "iteration_00001")]),  # in a row
        (2, [0.9, 0.1, None, 0.1], [(4, "iteration_00001")]),  # of those that were measured
        (2, [0.9, 0.1, 0.1, 0.1, 0.1], [(3, "iteration_00001"), (5, "iteration_00001")]),  # counted anew
    ],
)
def test_a_fall_below_the_best_sends_back(
    patience: int, successes: list[float | None], returns: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Judged(ReturnToBest(patience=patience), monkeypatch).see(*successes) == returns


def test_the_iteration_is_not_scored_by_the_weights_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Judged(ReturnToBest(patience=1), monkeypatch)
    run.see(0.9, 0.8, 0.1)
    assert run.data.heldout_success == {1: 0.9, 2: 0.8}
    assert run.checkpoint.pinned == 1


def test_rollouts_tell_of_the_weights_before_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Judged(ReturnToBest(patience=1), monkeypatch, every=0)
    # The 1.0 is that of what the run started from, which has no checkpoint.
    assert run.see(1.0, 0.6, 0.7, 0.1) == [(4, "iteration_00002")]


def test_rollouts_of_weights_without_a_checkpoint_are_no_best(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Judged(ReturnToBest(patience=1), monkeypatch, every=0)
    run.see(0.5, 0.6)
    run.checkpoint.saved = 0
    run.see(0.9)
    assert run.callback.best == (1, 0.6)


def test_it_gives_up_after_the_last_return_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Judged(ReturnToBest(patience=1, limit=2), monkeypatch)
    assert run.see(0.9, 0.1, 0.1) == [(2, "iteration_00001"), (3, "iteration_00001")]
    said = capsys.readouterr().out.splitlines()
    fall = "held-out success fell to 10.0% from 90.0% after iteration 1"
    assert said == [f"{fall}; back to the weights, optimisers and schedules of then, return {n} of 2" for n in (1, 2)]
    assert len(run.see(0.1, 0.1, 0.1)) == 2
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{fall}; no more returns after 2")


@pytest.mark.parametrize(
    ("folder", "every", "best"),
    [("iteration_00002", 1, (2, 0.9)), ("iteration_00003", 1, None), ("iteration_00002", 0, None)],
)
def test_a_best_that_is_gone_or_was_measured_otherwise_is_forgotten_on_resume(
    folder: str, every: int, best: tuple[int, float] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Judged(ReturnToBest(patience=9), monkeypatch)
    run.see(0.5, 0.9, 0.6)
    resumed = ReturnToBest(patience=9)
    resumed.load_state_dict(run.callback.state_dict())
    (tmp_path / folder).mkdir()
    run.checkpoint.folder, run.checkpoint.pinned = tmp_path, None
    run.trainer.callbacks = [HeldOut(every=every)]
    resumed.on_train_start(run.trainer, None)
    assert (resumed.best, resumed.fallen) == (best, 1 if best else 0)
    assert run.checkpoint.pinned == (2 if best else None)


@pytest.mark.parametrize("settings", [{"drop": 0.0}, {"drop": 1.1}, {"patience": 0}, {"limit": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected more than 0 up to 1, 1 or more, 1 or more"):
        ReturnToBest(**settings)


def test_without_checkpoints_there_is_nothing_to_return_to() -> None:
    with pytest.raises(ValueError, match="got 0 IterationCheckpoint callbacks, expected exactly one"):
        checkpoint_of(SimpleNamespace(checkpoint_callbacks=[]))


def test_it_is_off_unless_it_is_asked_for() -> None:
    for overrides in ([], ["return_to_best=checkpoint", "return_to_best=null"]):
        assert load(find_recipe("debug"), overrides).return_to_best is None
    asked = load(find_recipe("debug"), ["return_to_best=checkpoint", "return_to_best.drop=0.5"])
    assert asked.return_to_best.drop == 0.5


# Weights 0, 1, ...: those of iteration 2 are the best, 3 and 4 have fallen, and 5 are those of 2 again.
ROLLOUTS = [
    *scripted([0.5, 0.8, 0.9, 0.3, 0.3, 0.9, 0.9, 0.9]),
    "return_to_best=checkpoint",
    "iterations=7",
    "data.train_size=20",
    "prompts_per_iteration=2",
    "schedule.name=linear",
    "optimizer.lr=0.01",
]


def state(run: Path, iteration: int) -> dict[str, Any]:
    """Of a checkpoint."""
    loaded: dict[str, Any] = torch.load(run / CHECKPOINTS / f"iteration_{iteration:05d}" / "state.ckpt")
    return loaded


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    root = tmp_path_factory.mktemp("whole")
    return root, fit(root, *ROLLOUTS, "checkpoint.keep_last=99")


def test_after_a_return_everything_learned_is_that_of_the_best_and_training_goes_on(whole: tuple[Path, Any]) -> None:
    root, run = whole
    best, fallen, back, later = (state(root, n) for n in (2, 4, 5, 6))
    for part in LEARNED:
        assert_equal(back[part], best[part], part)
    for other in (fallen, later):
        assert all(
            not torch.equal(other["state_dict"][n], w) for n, w in best["state_dict"].items() if "layernorm" in n
        )
    assert [s["RolloutDataModule"]["finished"] for s in (best, back, later)] == [2, 5, 6]
    assert [s["RolloutDataModule"]["position"] for s in (best, back, later)] == [4, 10, 12]
    assert len(set(run.seen.samples)) == 14
    sevenths = [7, 6, 5, 4, 3, 5, 4]
    assert run.seen.rates["a"] == pytest.approx([0.01 * n / 7 for n in sevenths])


def test_the_engine_plays_with_the_restored_weights(whole: tuple[Path, Any]) -> None:
    root, _ = whole
    logged = EventAccumulator(str(root)).Reload()
    for policy in ("a", "b"):
        differences = [event.value for event in logged.Scalars(f"policy/{policy}/logprob_mismatch_max")]
        assert len(differences) == 7 and max(differences) < 1e-4
    counts = [(event.step, event.value) for event in logged.Scalars("return_to_best/count")]
    assert counts == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (6, 1), (7, 1)]


def test_a_run_that_is_resumed_between_fall_and_return_ends_as_the_run_left_alone(
    whole: tuple[Path, Any], tmp_path: Path
) -> None:
    root, _ = whole
    fit(tmp_path, *ROLLOUTS, stop=4)
    # Only the newest is asked for; the best stays besides.
    assert [s.iteration for s in saved_iterations(tmp_path / CHECKPOINTS)] == [2, 4]
    fit(tmp_path, *ROLLOUTS, resume=True)
    assert [s.iteration for s in saved_iterations(tmp_path / CHECKPOINTS)] == [6, 7]
    for part in (*LEARNED, "RolloutDataModule", "callbacks"):
        assert_equal(state(tmp_path, 7)[part], state(root, 7)[part], part)


def test_two_processes_return_together_and_end_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Numbers whose means are exact.
    more = [*scripted([0.5, 0.75, 0.875, 0.25, 0.25, 0.875, 0.875]), "return_to_best=checkpoint"]
    out = finish(start(tmp_path / "two", *more, *TWO, until=6))
    alone = [f"run.root={tmp_path / 'one'}", "iterations=6", *SETTINGS, *more]
    assert main(["fit", "--config", "debug", *alone]) == 0
    for said in (out, capsys.readouterr().out):
        assert said.count("held-out success fell to 25.0% from 87.5% after iteration 2; back to the weights") == 1
    best, back = (saved(tmp_path / "two", n) for n in (2, 4))
    for part in LEARNED:
        assert_equal(back[part], best[part], part)
    assert_close(saved(tmp_path / "two", 6), saved(tmp_path / "one", 6))
    metas = sorted((tmp_path / "two").glob("debug/*/checkpoints/*/meta.json"))
    assert [json.loads(meta.read_text())["score"] for meta in metas] == [0.75, 0.875, 0.25, None, 0.875, 0.875]
