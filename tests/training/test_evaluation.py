from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.evaluation import Score, bootstrap_interval, evaluate, evaluation_sampler
from atgrpo.training.team import Team
from atgrpo.types import Request, Sample
from tests.rollout.helpers import Tally

TRAINING = TreeSampler(
    turns=2, branches=4, order="parallel", alpha=0.5, max_tokens={"a": 7, "b": 9}, temperature=0.8, credit="backup"
)
TRAINING_OF_ONE = TreeSampler(turns=2, branches=4)
PROBLEMS = [Sample(str(i), "?", "!", {"goal": 1}) for i in range(21)]


def scripted_team(script: Callable[[Request, int], str], agents: dict[str, str] | None = None) -> Team:
    return Team(
        engine=partial(ScriptedEngine, script=script),
        environment=Tally,
        agents=agents or {"a": "p"},
        policies={"p": SimpleNamespace(folder=model_folder("tiny"), adapter=None)},
        max_prompt_tokens=500,
    )


def test_the_interval_of_equal_values_is_a_point() -> None:
    assert bootstrap_interval([0.25] * 8) == (0.25, 0.25)
    assert bootstrap_interval([1.0]) == (1.0, 1.0)


def test_the_interval_is_the_binomials() -> None:
    # Mean of 100 draws with p = 1/2: quantiles of Binomial(100, .5) / 100 at 2.5% and 97.5% are .40 and .60.
    low, high = bootstrap_interval([0.0, 1.0] * 50)
    assert low == pytest.approx(0.40, abs=0.011)
    assert high == pytest.approx(0.60, abs=0.011)
    assert bootstrap_interval([0.0, 1.0] * 50) == (low, high)


@pytest.mark.parametrize(("mode", "temperature"), [("greedy", 0.0), ("sampled", 0.8)])
def test_evaluation_plays_as_in_training_but_one_response_per_step(mode: str, temperature: float) -> None:
    sampler = evaluation_sampler(TRAINING, mode)  # type: ignore[arg-type]
    assert isinstance(sampler, ParallelSampler)
    assert (sampler.turns, sampler.order, sampler.alpha, sampler.trajectories) == (2, "parallel", 0.5, 1)
    assert sampler.sampling("b").max_tokens == 9
    assert sampler.sampling("a").temperature == temperature


def test_every_problem_is_played_once_and_nothing_is_selected_by_reward() -> None:
    replies = iter(["1/0"] * 7 + ["0/0"] * 28)  # in the order of the problems: 7 solved at once, 14 fail both turns
    team, done = scripted_team(lambda request, i: next(replies)), Mock()
    score, rollouts = evaluate(team, PROBLEMS, TRAINING_OF_ONE, "greedy", seed=3, on_done=done)
    assert (score.mode, score.problems, score.success) == ("greedy", 21, pytest.approx(0.7 / 21))
    assert score.success_by_turn == pytest.approx((0.7 / 21, 0.7 / 21))
    assert score.low < score.success < score.high
    assert [rollout.sample for rollout in rollouts] == PROBLEMS
    assert done.call_count == 21
    requests = team.engine.requests  # type: ignore[attr-defined]
    assert len(requests) == 7 + 2 * 14
    assert all(request.n == 1 and request.sampling.temperature == 0 for request in requests)


def test_success_by_turn_is_the_mean_level_after_each_turn() -> None:
    replies = iter(["1/0", "0/0", "1/0"])
    score, _ = evaluate(scripted_team(lambda r, i: next(replies)), PROBLEMS[:2], TRAINING_OF_ONE, "sampled", seed=0)
    assert score.success_by_turn == (0.05, 0.1)


def test_no_problems_are_refused() -> None:
    with pytest.raises(ValueError, match="got no held-out samples"):
        evaluate(scripted_team(lambda r, i: "1/0"), [], TRAINING_OF_ONE, "greedy", seed=0)


def test_a_score_is_one_line() -> None:
    score = Score("greedy", 0.25, 0.1, 0.4, (0.2, 0.25), 40)
    assert str(score) == "held-out success (greedy, 40 problems): 25.0% [10.0%, 40.0%]; after each turn 20.0%, 25.0%"
    assert (
        str(Score("sampled", 1.0, 1.0, 1.0, (1.0,), 3))
        == "held-out success (sampled, 3 problems): 100.0% [100.0%, 100.0%]"
    )


def test_prompts_carry_the_template_once_and_the_assistants_header_in_every_turn() -> None:
    team = scripted_team(lambda request, i: "0/0", {"a": "p", "b": "p"})
    evaluate(team, PROBLEMS[:1], TRAINING_OF_ONE, "greedy", seed=0)
    engine = team.engine
    texts = [engine.prompt_text(request) for request in engine.requests]  # type: ignore[attr-defined]
    assert len(texts) == 4
    assert all(
        text.startswith("<|im_start|>user\n") and text.endswith("<|im_end|>\n<|im_start|>assistant\n") for text in texts
    )
    assert all(text.count("<|im_start|>") == 2 for text in texts)


@pytest.mark.parametrize(
    ("agents", "message"), [({"c": "p"}, "got c, expected roles of the task: a, b"), ({"": "p"}, "expected roles")]
)
def test_roles_that_the_task_does_not_know_are_refused(agents: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scripted_team(lambda request, i: "", agents)
