"""What is known of estimators in theory, found by going through every outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.chance import every
from benchmarks.grouping.cells import Method, estimator
from benchmarks.team_game import GAMES, Game, Quality, Table, all_methods, quality, sampler_of

BY_NAME: Mapping[str, Game] = {game.name: game for game in GAMES}


def found(game: str, label: str, k: int = 3, *, greedy: bool = True) -> Quality:
    method = Method.parse(label)
    return quality(BY_NAME[game], sampler_of(method, k), estimator(method.grouping)(), greedy=greedy)


def success(game: Game) -> float:
    worse, better = game.values()
    return (1 - game.rates[0]) * worse + game.rates[0] * better


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_the_true_gradient_is_that_of_the_expected_reward(game: Game) -> None:
    odds = np.log(np.array(game.rates) / (1 - np.array(game.rates)))
    for i in range(3):
        ends = []
        for by in (1e-5, -1e-5):
            moved = odds + by * (np.arange(3) == i)
            ends.append(success(replace(game, rates=tuple(1 / (1 + np.exp(-moved))))))
        assert game.gradient()[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("label", ["at_grpo-tree-continuation", "at_grpo-parallel-outcome"])
def test_outcomes_are_complete_and_their_mean_is_the_expected_reward(label: str) -> None:
    game, method = BY_NAME["match"], Method.parse(label)
    outcomes = list(every(Table(game, sampler_of(method, 2), greedy=False).play))
    assert sum(probability for probability, _ in outcomes) == pytest.approx(1)
    assert sum(probability * rollout.outcome for probability, rollout in outcomes) == pytest.approx(success(game))


@pytest.mark.parametrize("game", ["complete", "match"])
@pytest.mark.parametrize("label", ["rloo-parallel-outcome", "rae-parallel-outcome"])
def test_a_baseline_without_the_own_action_leaves_no_bias(game: str, label: str) -> None:
    quality_ = found(game, label, k=2)
    assert quality_.bias == pytest.approx(0, abs=1e-9)
    assert quality_.cosine == pytest.approx(1)


def test_a_frozen_context_leaves_no_bias_where_the_policy_itself_chooses_it() -> None:
    assert found("match", "c3-tree-continuation", k=2, greedy=False).bias == pytest.approx(0, abs=1e-9)
    assert found("match", "c3-tree-continuation", k=2).bias > 0.05


def test_a_step_without_a_reward_of_its_own_is_unlearned_although_it_leads_to_more() -> None:
    assert BY_NAME["handover"].gradient()[0] > 0
    assert found("handover", "at_grpo-tree-step").mean[0] < 0
    assert found("handover", "at_grpo-tree-continuation").mean[0] > 0
    assert found("handover", "at_grpo-parallel-outcome").mean[0] > 0


def test_at_equal_tokens_the_tree_is_less_noisy_where_steps_have_their_own_reward() -> None:
    tree, whole = found("complete", "at_grpo-tree-step"), found("complete", "grpo-parallel-outcome")
    assert tree.noise_per_token < whole.noise_per_token


def test_pooled_turns_are_one_vote_each_where_every_trajectory_has_as_many() -> None:
    pooled, voted = (found("match", f"{name}-parallel-outcome", k=2) for name in ("grpo_pooled", "grpo"))
    assert pooled.cosine == pytest.approx(voted.cosine)


def test_playouts_are_paid_for() -> None:
    assert found("match", "at_grpo-tree-step", k=2).tokens == pytest.approx(4)
    assert found("match", "at_grpo-tree-continuation", k=2).tokens == pytest.approx(6)


def test_every_estimator_can_be_measured() -> None:
    assert {method.grouping for method in all_methods()} >= {"at_grpo", "treerl", "rae", "gigpo", "reinforce_pp"}
    assert all(np.isfinite(found("complete", m.label, k=1).tokens) for m in all_methods() if m.credit != "backup")
