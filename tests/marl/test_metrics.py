"""What is logged of seeds that have, and of seeds that have not, finished an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atgrpo.marl.callbacks.metrics import TeamMetrics, by_tag, finite
from atgrpo.marl.types import Episodes

NAN = math.nan


class Log:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.steps: dict[int, Mapping[str, float]] = {}

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        self.steps[step] = values


def logged(count: list[float], returns: list[float]) -> Mapping[str, float]:
    """What an iteration of two steps in one environment logs; ``returns`` are sums over ``count`` whole episodes."""
    seeds = len(count)
    experience = SimpleNamespace(rewards=torch.full((seeds, 2, 1, 2), 0.25), group_rewards=torch.ones(seeds, 2, 1))
    episodes = Episodes({"return": torch.tensor(returns)}, torch.tensor(count))
    latest = SimpleNamespace(episodes=episodes, experience=experience, seconds={"rollout": 1.0}, frames=2)
    log = Log()
    trainer: Any = SimpleNamespace(
        datamodule=SimpleNamespace(latest=latest, finished=1), callbacks=[], logger=log, max_epochs=1
    )
    module: Any = SimpleNamespace(seeds=tuple(range(seeds)), actor=None, pop_stats=dict)
    callback = TeamMetrics()
    callback.on_train_epoch_start(trainer, module)
    callback.on_train_epoch_end(trainer, module)
    assert list(log.steps) == [2]
    return log.steps[2]


def test_a_seed_without_a_whole_episode_is_left_out_of_the_mean() -> None:
    values = by_tag({"return": torch.tensor([1.0, NAN, 4.0])}, (5, 6, 7))
    assert math.isnan(values.pop("return/seed_6"))
    assert values == {"return": 2.5, "return/seed_5": 1.0, "return/seed_7": 4.0}


def test_one_seed_has_no_tag_of_its_own() -> None:
    assert by_tag({"return": torch.tensor([2.0])}, (3,)) == {"return": 2.0}


def test_where_no_seed_has_a_value_there_is_none_of_their_mean() -> None:
    assert math.isnan(by_tag({"return": torch.tensor([NAN, NAN])}, (0, 1))["return"])


def test_a_tag_without_a_value_is_dropped_and_a_zero_is_kept() -> None:
    assert finite({"nothing": NAN, "zero": 0.0, "below": -1.5}) == {"zero": 0.0, "below": -1.5}


@pytest.mark.parametrize("count", [[0.0], [0.0, 0.0]])
def test_a_run_in_which_no_seed_finishes_an_episode_logs_no_return(
    count: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    values = logged(count, [0.0] * len(count))
    assert [tag for tag in values if tag.startswith("rollout/return")] == []
    assert (values["rollout/episodes"], values["rollout/step_reward"], values["rollout/step_group_reward"]) == (
        0,
        0.25,
        1,
    )
    assert "no whole episode yet" in capsys.readouterr().out


def test_a_seed_that_finishes_no_episode_is_not_logged_beside_one_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = logged([0.0, 4.0], [0.0, 6.0])
    returns = {tag: value for tag, value in values.items() if tag.startswith("rollout/return")}
    assert returns == {"rollout/return": 1.5, "rollout/return/seed_1": 1.5}
    assert (values["rollout/episodes/seed_0"], values["rollout/episodes/seed_1"]) == (0, 4)
    assert "| return 1.50 |" in capsys.readouterr().out
