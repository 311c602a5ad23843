from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from atgrpo.training.callbacks.samples import SampledTree
from atgrpo.training.datamodule import Iteration
from atgrpo.types import Rollout
from tests.rollout.helpers import make_rollout, make_turn


def written(folder: Path, *iterations: list[Rollout], every: int = 1) -> list[tuple[int, str]]:
    """(step, text) of what stands in TensorBoard's file afterwards."""
    logger = TensorBoardLogger(str(folder), name="", version="")
    callback = SampledTree(every)
    for number, rollouts in enumerate(iterations):
        data = SimpleNamespace(latest=Iteration(number, rollouts))
        trainer: Any = SimpleNamespace(datamodule=data, logger=logger)
        callback.on_train_epoch_end(trainer, None)
    logger.finalize("success")
    events = EventAccumulator(str(folder)).Reload()
    if "rollout/tree/text_summary" not in events.Tags()["tensors"]:
        return []
    return [(e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors("rollout/tree/text_summary")]


def rollout(text: str, advantage: float = 0.0) -> Rollout:
    return make_rollout(make_turn(text=text, advantage=advantage))


# strands-env issue 211: half of a surrogate pair in a response ended the run when it was logged.
@pytest.mark.parametrize("half", ["\ud83d", "\udc00"])
def test_a_lone_surrogate_is_written_escaped(half: str, tmp_path: Path) -> None:
    [(step, text)] = written(tmp_path, [rollout(f"an {half} end")])
    assert step == 0
    assert f"an {half.encode(errors='backslashreplace').decode()} end" in text


def test_the_tree_is_one_that_taught_something_else_the_first(tmp_path: Path) -> None:
    shown = written(tmp_path, [rollout("first"), rollout("taught", 0.5)], [], [rollout("flat"), rollout("too")])
    assert [(step, "taught" in text, "flat" in text) for step, text in shown] == [(0, True, False), (2, False, True)]


def test_every_second_iteration_is_written(tmp_path: Path) -> None:
    assert [step for step, _ in written(tmp_path, *[[rollout("x")]] * 5, every=2)] == [0, 2, 4]


@pytest.mark.parametrize("with_logger", [True, False])
def test_a_logger_that_takes_no_text_is_left_alone(with_logger: bool, tmp_path: Path) -> None:
    logger = CSVLogger(str(tmp_path), name="", version="") if with_logger else None
    trainer: Any = SimpleNamespace(datamodule=SimpleNamespace(latest=Iteration(0, [rollout("x")])), logger=logger)
    SampledTree().on_train_epoch_end(trainer, None)
    assert not list(tmp_path.rglob("*.csv"))


def test_no_iterations_between_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="samples got every=0, expected 1 or more"):
        SampledTree(0)
