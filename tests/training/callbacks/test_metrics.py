from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from atgrpo.training.callbacks.metrics import IterationMetrics, finite
from atgrpo.training.datamodule import Iteration
from tests.rollout.helpers import make_rollout, make_turn


def finish(metrics: IterationMetrics, number: int, tokens: int, logger: Any = None) -> dict[str, float]:
    rollouts = [make_rollout(make_turn(range(tokens), credit=None), outcome=0.5)]
    latest = Iteration(number, rollouts, {"sync": 1.0, "rollout": 2.0, "score": 3.0}, {"prefix_cache_hit_rate": 0.75})
    module = SimpleNamespace(
        pop_stats=lambda: {"p": {"loss": 0.5, "grad_norm": math.nan}}, log_dict=lambda *_, **__: None
    )
    trainer = SimpleNamespace(datamodule=SimpleNamespace(latest=latest), logger=logger)
    metrics.on_train_epoch_start(trainer, module)
    metrics.on_train_epoch_end(trainer, module)
    return metrics.values


def test_what_has_no_value_is_not_logged() -> None:
    assert finite({"a": 1, "b": math.nan, "c": 0.0}) == {"a": 1.0, "c": 0.0}
    values = finish(IterationMetrics(), 0, 8)
    assert "policy/p/grad_norm" not in values
    assert "rollout/a/reward" not in values
    assert values["rollout/a/missing_rewards"] == 1.0


def test_everything_is_under_its_tag_and_logged_against_the_iteration() -> None:
    logger = Mock()
    values = finish(IterationMetrics(), 4, 8, logger)
    assert values["policy/p/loss"] == 0.5
    assert values["engine/prefix_cache_hit_rate"] == 0.75
    assert values["rollout/success"] == 0.5
    assert values["rollout/tokens_per_second"] == 4.0
    assert [values[f"seconds/{phase}"] for phase in ("sync", "rollout", "score")] == [1.0, 2.0, 3.0]
    assert values["seconds/train"] >= 0
    logger.log_metrics.assert_called_once_with(values, step=4)


def test_the_total_of_tokens_goes_on_over_a_resume() -> None:
    metrics = IterationMetrics()
    assert finish(metrics, 0, 8)["rollout/tokens_total"] == 8.0
    assert finish(metrics, 1, 3)["rollout/tokens"] == 3.0
    resumed = IterationMetrics()
    resumed.load_state_dict(metrics.state_dict())
    assert finish(resumed, 2, 5)["rollout/tokens_total"] == 16.0
