"""However an iteration's turns are laid out, one step's gradient is the same."""

from __future__ import annotations

from random import Random

import pytest

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.rollout.collate import Batching, make_minibatches
from atgrpo.types import Minibatch, Turn
from tests.policies.helpers import assert_same, gradients
from tests.rollout.helpers import make_rollout, make_turn

PROMPTS = [(10, 11, 12, 13), (20, 21), (30, 31, 32, 33, 34, 35)]
TURNS = [
    make_turn(
        (40 + i, 50, 60 + i, 3)[-1 - i % 4 :],
        PROMPTS[i % 3],
        advantage=(1.0, -0.5, 0.0, 2.0, -1.0)[i % 5],
        branch=i // 3,
    )
    for i in range(12)
]


@pytest.fixture(scope="module")
def tiny() -> CausalLMPolicy:
    return CausalLMPolicy("tiny")


def plan(turns: list[Turn], *, skip_zero: bool = True, **settings: object) -> list[Minibatch]:
    rollouts = [make_rollout(turn) for turn in turns]
    return make_minibatches(rollouts, ["p"], Batching(**settings), seed=0, skip_zero=skip_zero)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "trajectory_mean"])
@pytest.mark.parametrize("budget", [1, 24, 40])
def test_the_budget_of_a_microbatch_does_not_change_the_gradient(
    tiny: CausalLMPolicy, aggregation: str, budget: int
) -> None:
    small = plan(TURNS, aggregation=aggregation, tokens_per_microbatch=budget)
    [whole] = plan(TURNS, aggregation=aggregation)
    assert len(small) > 1
    assert_same(gradients(tiny, small), gradients(tiny, [whole]))


def test_leaving_out_zero_advantages_does_not_change_the_gradient(tiny: CausalLMPolicy) -> None:
    short, full = plan(TURNS), plan(TURNS, skip_zero=False)
    assert short[0].loss_mask.sum() < full[0].loss_mask.sum()
    assert_same(gradients(tiny, short), gradients(tiny, full))


def test_the_order_of_the_turns_does_not_change_the_gradient(tiny: CausalLMPolicy) -> None:
    shuffled = Random(1).sample(TURNS, len(TURNS))
    for settings in ({}, {"tokens_per_microbatch": 24}):
        assert_same(gradients(tiny, plan(shuffled, **settings)), gradients(tiny, plan(TURNS)))


def test_responses_to_one_prompt_give_the_gradient_of_rows_of_their_own(tiny: CausalLMPolicy) -> None:
    rows = plan(TURNS, tokens_per_microbatch=1)
    assert all(batch.branch_ids.max() == 1 for batch in rows)
    assert_same(gradients(tiny, rows), gradients(tiny, plan(TURNS)))
