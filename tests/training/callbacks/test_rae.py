from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atgrpo.training.callbacks.rae import RAE
from atgrpo.types import Turn
from tests.rollout.helpers import make_turn
from tests.training.callbacks.estimators import advantages, score
from tests.training.runs import fit


def at(iteration: int) -> Any:
    return SimpleNamespace(datamodule=SimpleNamespace(finished=iteration))


def batch(*returns: float) -> list[Turn]:
    return [make_turn(branch=i, credit=r) for i, r in enumerate(returns)]


def test_each_return_against_what_those_before_it_have_left() -> None:
    callback = RAE(decay=0.5)
    # b: 0, 4, 4, 2
    assert advantages(callback, *batch(8.0, 4.0, 0.0)) == [8.0, 0.0, -4.0]
    assert callback.baselines == {"a": 2.0}
    turns = score(callback, *batch(2.0))
    assert [(turn.advantage, turn.group) for turn in turns] == [(0.0, 0)]


def test_the_papers_decay() -> None:
    callback = RAE()
    assert advantages(callback, *batch(1.0, 1.0)) == pytest.approx([1.0, 0.95])
    assert callback.baselines["a"] == pytest.approx(0.05 + 0.95 * 0.05)


def test_roles_have_baselines_of_their_own_and_one_vote_per_trajectory() -> None:
    callback = RAE(decay=0.5)
    turns = [
        make_turn(agent="a", branch=0, credit=2.0),
        make_turn(agent="b", branch=0, credit=10.0),
        make_turn(agent="a", branch=0, turn=1, credit=6.0),  # a's return is 4
        make_turn(agent="a", branch=1, credit=4.0),
    ]
    found = score(callback, *turns)
    assert [turn.advantage for turn in found] == [4.0, 10.0, 4.0, 2.0]
    assert [turn.group for turn in found] == [0, 1, 0, 0]
    assert callback.baselines == {"a": 3.0, "b": 5.0}


def test_a_missing_return_moves_nothing() -> None:
    callback = RAE(decay=0.5)
    assert advantages(callback, make_turn(branch=0, credit=None), *batch(0.0, 4.0)[1:]) == [None, 4.0]
    assert callback.baselines == {"a": 2.0}


def test_a_constant_reward_is_learned() -> None:
    callback = RAE()
    for _ in range(40):
        last = advantages(callback, *batch(*[3.0] * 8))
    assert last == pytest.approx([0.0] * 8, abs=1e-5)


def test_what_was_saved_between_iterations_goes_on_as_if_never_stopped() -> None:
    left_alone, stopped, resumed = RAE(), RAE(), RAE()
    for number in range(4):
        score(left_alone, *batch(1.0, float(number)), trainer=at(number))
    for number in range(2):
        score(stopped, *batch(1.0, float(number)), trainer=at(number))
    resumed.load_state_dict(stopped.state_dict())
    for number in range(2, 4):
        score(resumed, *batch(1.0, float(number)), trainer=at(number))
    assert resumed.baselines == left_alone.baselines


def test_an_iteration_that_was_not_finished_when_it_was_saved_moves_the_baselines_once() -> None:
    callback, resumed = RAE(), RAE()
    first = advantages(callback, *batch(1.0))
    score(callback, *batch(1.0), trainer=at(0))
    before = dict(callback.baselines)
    score(callback, *batch(1.0), trainer=at(1))
    score(callback, *batch(5.0), trainer=at(1))  # replacements of the same iteration go on from it
    resumed.load_state_dict(callback.state_dict())
    score(resumed, *batch(), trainer=at(1))
    assert resumed.baselines == before
    score(resumed, *batch(1.0), trainer=at(1))
    score(resumed, *batch(5.0), trainer=at(1))
    assert resumed.baselines == callback.baselines
    assert first == [1.0]


def test_its_state_is_made_of_what_a_checkpoint_may_hold(tmp_path: Path) -> None:
    callback, loaded = RAE(), RAE()
    score(callback, *batch(1.0), trainer=at(0))
    torch.save(callback.state_dict(), tmp_path / "state")
    loaded.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert loaded.baselines == callback.baselines == pytest.approx({"a": 0.05})


def test_a_resumed_run_equals_the_run_left_alone(tmp_path: Path) -> None:
    settings = ["advantage=rae", "sampler=parallel", "~sampler.branches", "sampler.trajectories=2", "iterations=3"]
    whole = fit(tmp_path / "whole", *settings)
    fit(tmp_path / "cut", *settings, stop=1)
    resumed = fit(tmp_path / "cut", *settings, resume=True)

    def state(run: Any) -> tuple[dict[str, float], dict[str, Any]]:
        [callback] = [c for c in run.trainer.callbacks if isinstance(c, RAE)]
        return callback.baselines, run.module.state_dict()

    (baselines, weights), (other, others) = state(whole), state(resumed)
    assert baselines == other and set(baselines) == {"tool", "reasoner"}
    assert all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("decay", [1.0, -0.1, float("nan")])
def test_a_baseline_that_cannot_move_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="advantage RAE got decay="):
        RAE(decay)
