from __future__ import annotations

import csv
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

from lightning.pytorch.loggers import CSVLogger

from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.heldout import HeldOut
from atgrpo.types import Sample
from tests.training.test_missing_values import team


def test_a_turn_that_could_not_be_judged_is_not_logged(tmp_path: Path) -> None:
    data = SimpleNamespace(
        finished=0,
        seed=0,
        data=SimpleNamespace(split=lambda name: [Sample("0", "?", "!", {"goal": 1})]),
        playing=lambda: nullcontext(team(["?/0", "1/0"])),
        sampler=TreeSampler(turns=2, branches=4),
        heldout_success={},
    )
    logger = CSVLogger(tmp_path, name="", version="")
    HeldOut().on_train_start(SimpleNamespace(datamodule=data, logger=logger), None)
    logger.save()
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert rows[0]["heldout/greedy/success"] == rows[0]["heldout/greedy/success_turn_2"] == "0.1"
    assert "heldout/greedy/success_turn_1" not in rows[0]
