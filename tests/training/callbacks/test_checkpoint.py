from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atgrpo.engines.base import AgreedError
from atgrpo.ranks import ONE, Ranks
from atgrpo.training.callbacks.checkpoint import IterationCheckpoint, saved_iterations


class FakeTrainer:
    is_global_zero = True
    should_stop = False
    max_epochs = 100
    logger = None

    def __init__(self, **scores: float) -> None:
        measured = {int(k[1:]): v for k, v in scores.items()}
        self.datamodule = SimpleNamespace(finished=0, heldout_success=measured, ranks=ONE, between_iterations=True)
        self.strategy = SimpleNamespace(barrier=lambda: None)

    def save_checkpoint(self, path: Path) -> None:
        path.write_text(f"state {self.datamodule.finished}")


def checkpoint_in(folder: Path, **settings: int) -> IterationCheckpoint:
    checkpoint = IterationCheckpoint(**settings)
    checkpoint.folder = folder
    return checkpoint


def run(checkpoint: IterationCheckpoint, trainer: Any, iterations: range) -> list[int]:
    """Finishes iterations one after another; returns which have a checkpoint afterwards."""
    for number in iterations:
        trainer.datamodule.finished = number
        checkpoint.on_train_epoch_end(trainer, None)
    return numbers(checkpoint.folder)


def numbers(folder: Path) -> list[int]:
    return [saved.iteration for saved in saved_iterations(folder)]


def test_the_newest_stays(tmp_path: Path) -> None:
    assert run(checkpoint_in(tmp_path), FakeTrainer(), range(1, 4)) == [3]
    assert run(checkpoint_in(tmp_path, keep_last=2), FakeTrainer(), range(4, 12)) == [10, 11]
    assert sorted(os.listdir(tmp_path)) == ["iteration_00010", "iteration_00011"]


def test_the_best_stay_besides_the_newest(tmp_path: Path) -> None:
    trainer = FakeTrainer(i2=0.5, i4=0.9, i6=0.7, i8=0.5)
    assert run(checkpoint_in(tmp_path, keep_best=2), trainer, range(1, 10)) == [4, 6, 9]
    assert [saved.score for saved in saved_iterations(tmp_path)] == [0.9, 0.7, None]


def test_of_equal_scores_the_newer_is_best(tmp_path: Path) -> None:
    assert run(checkpoint_in(tmp_path, keep_best=1), FakeTrainer(i1=0.5, i2=0.5), range(1, 4)) == [2, 3]


def test_what_is_pinned_is_written_and_stays_until_another_is(tmp_path: Path) -> None:
    checkpoint, trainer = checkpoint_in(tmp_path, every=3), FakeTrainer()
    checkpoint.pinned = 2
    assert run(checkpoint, trainer, range(1, 7)) == [2, 6]
    checkpoint.pinned = 7
    assert run(checkpoint, trainer, range(7, 8)) == [7]
    assert checkpoint.place(7) == saved_iterations(tmp_path)[0].folder


def test_written_when_due_at_the_end_and_when_told_to_stop(tmp_path: Path) -> None:
    trainer = FakeTrainer()
    trainer.max_epochs = 7
    assert run(checkpoint_in(tmp_path, every=3, keep_last=9), trainer, range(1, 8)) == [3, 6, 7]
    trainer.max_epochs, trainer.should_stop = 100, True
    assert run(checkpoint_in(tmp_path, every=3, keep_last=9), trainer, range(8, 9)) == [3, 6, 7, 8]


def test_what_is_saved_is_found_with_its_state(tmp_path: Path) -> None:
    run(checkpoint_in(tmp_path), FakeTrainer(i1=0.25), range(1, 2))
    [saved] = saved_iterations(tmp_path)
    assert (saved.iteration, saved.score, saved.folder) == (1, 0.25, tmp_path / "iteration_00001")
    assert saved.state.read_text() == "state 1"
    assert saved_iterations(tmp_path / "nothing here") == []


def test_a_kill_while_writing_leaves_nothing_that_looks_whole_and_is_cleaned_up(tmp_path: Path) -> None:
    class Killed(FakeTrainer):
        def save_checkpoint(self, path: Path) -> None:
            path.write_text("ha")
            raise KeyboardInterrupt

    checkpoint = checkpoint_in(tmp_path)
    run(checkpoint, FakeTrainer(), range(1, 2))
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint, Killed(), range(2, 3))
    assert numbers(tmp_path) == [1]
    assert len(os.listdir(tmp_path)) == 2
    assert run(checkpoint, FakeTrainer(), range(2, 3)) == [2]
    assert os.listdir(tmp_path) == ["iteration_00002"]


def test_a_kill_while_pruning_leaves_nothing_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = checkpoint_in(tmp_path)
    run(checkpoint, FakeTrainer(), range(1, 2))
    real = shutil.rmtree

    def killed_half_way(folder: Path, ignore_errors: bool = False) -> None:
        if (folder / "state.ckpt").exists():
            (folder / "state.ckpt").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed_half_way)
    with pytest.raises(KeyboardInterrupt):
        run(checkpoint, FakeTrainer(), range(2, 3))
    monkeypatch.setattr(shutil, "rmtree", real)
    assert all(saved.state.exists() for saved in saved_iterations(tmp_path))
    assert numbers(tmp_path) == [2]
    assert run(checkpoint, FakeTrainer(), range(3, 4)) == [3]
    assert os.listdir(tmp_path) == ["iteration_00003"]


def test_a_run_that_was_set_back_writes_over_the_same_iteration(tmp_path: Path) -> None:
    checkpoint = checkpoint_in(tmp_path, keep_last=5)
    run(checkpoint, FakeTrainer(i2=0.1), range(1, 3))
    assert run(checkpoint, FakeTrainer(i2=0.6), range(2, 3)) == [1, 2]
    assert saved_iterations(tmp_path)[-1].score == 0.6


@pytest.mark.parametrize("settings", [{"every": 0}, {"keep_last": 0}, {"keep_best": -1}])
def test_settings_out_of_range_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 1, 1, 0 or more"):
        IterationCheckpoint(**settings)


def test_what_is_finished_and_not_yet_due_is_saved_when_the_run_fails(tmp_path: Path) -> None:
    checkpoint, trainer = checkpoint_in(tmp_path, every=5), FakeTrainer()
    assert run(checkpoint, trainer, range(1, 4)) == []
    trainer.datamodule.between_iterations = False  # half an iteration has been learned from
    checkpoint.on_exception(trainer, None, RuntimeError())
    assert numbers(tmp_path) == []
    trainer.datamodule.between_iterations = True
    checkpoint.on_exception(trainer, None, RuntimeError())
    assert numbers(tmp_path) == [3]
    stamp = (tmp_path / "iteration_00003" / "meta.json").stat().st_mtime_ns
    checkpoint.on_exception(trainer, None, RuntimeError())
    assert (tmp_path / "iteration_00003" / "meta.json").stat().st_mtime_ns == stamp


def test_a_run_whose_processes_could_not_be_started_has_nothing_to_save(tmp_path: Path) -> None:
    checkpoint, trainer = checkpoint_in(tmp_path), FakeTrainer()
    trainer.datamodule = None
    checkpoint.on_exception(trainer, None, BlockingIOError())
    assert numbers(tmp_path) == []


def test_of_several_ranks_a_failure_is_saved_only_where_all_stand_at_the_same_point(tmp_path: Path) -> None:
    checkpoint, trainer = checkpoint_in(tmp_path, every=5), FakeTrainer()
    run(checkpoint, trainer, range(1, 3))
    trainer.datamodule.ranks = Ranks(rank=0, size=2)
    checkpoint.on_exception(trainer, None, RuntimeError("of this rank alone"))
    assert numbers(tmp_path) == []
    checkpoint.on_exception(trainer, None, AgreedError("of all"))
    assert numbers(tmp_path) == [2]
