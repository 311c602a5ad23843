from __future__ import annotations

from types import SimpleNamespace

import pytest

from atgrpo.training.callbacks.console import Console
from atgrpo.training.callbacks.metrics import IterationMetrics

KNOWN = {
    "rollout/success": 0.25,
    "rollout/tool/reward": 1.5,
    "rollout/tokens": 90.0,
    "rollout/tokens_per_second": 45.0,
    "seconds/sync": 0.1,
    "seconds/rollout": 2.0,
    "seconds/prepare": 0.2,
    "seconds/train": 3.0,
}


def line(values: dict[str, float], capsys: pytest.CaptureFixture[str]) -> str:
    metrics = IterationMetrics()
    metrics.values = values
    trainer = SimpleNamespace(datamodule=SimpleNamespace(finished=3), max_epochs=9)
    Console(metrics, {"tool": "a", "reasoner": "b"}).on_train_epoch_end(trainer, None)
    return capsys.readouterr().out


def test_an_iteration_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert line(KNOWN | {"rollout/reasoner/reward": -0.125}, capsys) == (
        "iteration 3/9 | kept paths 0.25 | reward tool 1.50 reasoner -0.12 | 90 tokens at 45/s | "
        "sync 0.1s rollout 2.0s prepare 0.2s train 3.0s\n"
    )


def test_what_could_not_be_judged_is_a_question_mark(capsys: pytest.CaptureFixture[str]) -> None:
    unjudged = {name: value for name, value in KNOWN.items() if name != "rollout/success"}
    assert "kept paths ? | reward tool 1.50 reasoner ? |" in line(unjudged, capsys)


def test_why_nothing_was_learned_stands_behind_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = line(KNOWN | {"rollout/overlong_prompts": 2.0, "group/zero_variance": 1.0}, capsys)
    assert said.endswith(
        "train 3.0s | prompts beyond max_prompt_tokens: 2 | "
        "nothing learned: in every group all candidates earned the same\n"
    )
    assert "learned" not in line(KNOWN | {"rollout/overlong_prompts": 0.0, "group/zero_variance": 0.9}, capsys)
