"""What the judge could not tell is left out of every number, and no number is made of nothing."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import pytest

from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.samplers import mean
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.metrics import finite
from atgrpo.training.evaluation import evaluate
from atgrpo.training.rollout_metrics import rollout_metrics
from atgrpo.training.team import Team
from atgrpo.types import Sample
from tests.rollout.helpers import Fragile, make_rollout, make_turn


def team(replies: list[str]) -> Team:
    left = iter(replies)
    return Team(
        engine=partial(ScriptedEngine, script=lambda request, i: next(left)),
        environment=Fragile,
        agents={"a": "p"},
        policies={"p": SimpleNamespace(folder=model_folder("tiny"), adapter=None)},  # type: ignore[dict-item]
        max_prompt_tokens=500,
    )


# trl issue 4501: one NaN among the rewards made every mean NaN.
@pytest.mark.parametrize(
    ("values", "expected"), [([1.0, math.nan, 0.0, None], 0.5), ([math.nan, 3.0], 3.0), ([0.0, math.nan], 0.0)]
)
def test_a_mean_is_over_the_values_that_are_there(values: list[float | None], expected: float) -> None:
    assert mean(values) == expected


def test_one_unjudged_tree_leaves_the_others_mean_and_only_unjudged_ones_are_not_logged() -> None:
    one = [make_rollout(make_turn(), outcome=o, success_by_turn=(o,)) for o in (1.0, math.nan, 0.0, 1.0)]
    out = finite(rollout_metrics(one))
    assert out["rollout/success"] == out["rollout/success_turn_1"] == pytest.approx(2 / 3)
    none = finite(
        rollout_metrics([make_rollout(make_turn(credit=None), outcome=math.nan, success_by_turn=(math.nan,))])
    )
    assert none["rollout/a/missing_rewards"] == 1.0
    assert not {"rollout/success", "rollout/success_turn_1", "rollout/a/reward", "turn_1/a/reward"} & set(none)
    assert all(math.isfinite(value) for value in none.values())


def test_a_held_out_problem_without_a_verdict_is_neither_right_nor_wrong() -> None:
    problems = [Sample(str(i), "?", "!", {"goal": 1}) for i in range(21)]
    replies = ["1/0"] * 8 + ["?/0"] + ["0/0"] * 12
    sampler = TreeSampler(turns=1, branches=4)
    score, rollouts = evaluate(team(replies), problems, sampler, "greedy", seed=0)
    assert (len(rollouts), score.problems, score.success) == (21, 20, pytest.approx(0.8 / 20))
    assert score.success_by_turn == pytest.approx((0.8 / 20,))
    with pytest.raises(ValueError, match="got no verdict on any of 3 samples"):
        evaluate(team(["?/0"] * 3), problems[:3], sampler, "greedy", seed=0)


def test_a_turn_without_a_verdict_leaves_the_score_of_the_end_and_of_that_turn_elsewhere() -> None:
    problems = [Sample(str(i), "?", "!", {"goal": 1}) for i in range(2)]
    sampler = TreeSampler(turns=2, branches=4)
    score, _ = evaluate(team(["?/0", "0/0", "1/0", "0/0"]), problems, sampler, "greedy", seed=0)
    assert (score.success, score.success_by_turn) == (0.05, (0.0, 0.05))
    score, _ = evaluate(team(["?/0", "1/0"]), problems[:1], sampler, "greedy", seed=0)
    assert score.success == score.success_by_turn[1] == 0.1
    assert math.isnan(score.success_by_turn[0])
    assert str(score).endswith("10.0% [10.0%, 10.0%]; after each turn ?, 10.0%")
