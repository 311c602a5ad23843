from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, pairwise
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.engines.base import generate
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.functional.losses import aggregate
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.collate import Batching, make_minibatches, pack
from atgrpo.types import Minibatch, Request, Sampling, Turn
from tests.rollout.helpers import make_rollout, make_turn

EOS, PAD = 3, 0


def batches(
    turns: list[Turn], batching: Batching | None = None, policies: tuple[str, ...] = ("p",), *, skip_zero: bool = True
) -> list[Minibatch]:
    return make_minibatches([make_rollout(*turns)], policies, batching or Batching(), seed=0, skip_zero=skip_zero)


def many(n: int, seed: int = 0) -> list[Turn]:
    """Turns of random lengths on a few prompts, with advantages of both signs and some zeros."""
    rng = Random(seed)
    prompts = [tuple(rng.randrange(4, 90) for _ in range(rng.randrange(2, 9))) for _ in range(max(1, n // 3))]
    return [
        make_turn(
            ids=tuple(rng.randrange(4, 90) for _ in range(rng.randrange(1, 12))),
            prompt=rng.choice(prompts),
            advantage=rng.choice([-1.0, 0.0, 0.5, 2.0]),
        )
        for _ in range(n)
    ]


def trained_ids(plan: list[Minibatch]) -> list[tuple[int, ...]]:
    """The ids under the mask, one tuple per branch."""
    found = []
    for batch in plan:
        for row, branches, mask in zip(batch.token_ids, batch.branch_ids, batch.loss_mask, strict=True):
            found += [tuple(row[mask & (branches == k)].tolist()) for k in range(1, int(branches.max()) + 1)]
    return sorted(found)


def test_two_branches_by_hand() -> None:
    rows = [
        [make_turn((9, EOS), (7, 8), advantage=0.5), make_turn((5,), (7, 8), advantage=-2.0)],
        [make_turn((PAD, EOS), (4,), advantage=1.5)],
    ]
    batch = pack("p", rows, Batching(), 5.0, last=True)
    assert batch.token_ids.tolist() == [[7, 8, 9, EOS, 5], [4, PAD, EOS, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 2], [0, 1, 2, 0, 0]]
    assert batch.branch_ids.tolist() == [[0, 0, 1, 1, 2], [0, 1, 1, -1, -1]]
    assert batch.loss_mask.tolist() == [[False, False, True, True, True], [False, True, True, False, False]]
    # Each branch's first token is predicted at the prompt's end, not at the token that lies before it.
    assert batch.source[batch.loss_mask].tolist() == [1, 2, 1, 0, 1]
    assert batch.sampler_logprobs.tolist() == [[0, 0, -0.5, -1.5, -0.5], [0, -0.5, -1.5, 0, 0]]
    assert batch.advantages.tolist() == [[0, 0, 0.5, 0.5, -2.0], [0, 1.5, 1.5, 0, 0]]
    assert batch.weights.tolist() == [[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]]
    assert (batch.policy, batch.denominator, batch.last, batch.old_logprobs) == ("p", 5.0, True, None)


def test_lengths_decide_what_is_trained_and_not_ids_that_look_like_padding() -> None:
    turns = [make_turn((EOS,) * n, (PAD, PAD, n), advantage=1.0) for n in (3, 5, 2)]
    batch = pack("p", [[turn] for turn in turns], Batching(), 10.0, last=True)
    assert batch.loss_mask.sum(1).tolist() == [3, 5, 2]
    assert (batch.branch_ids >= 0).sum(1).tolist() == (batch.loss_mask.sum(1) + 3).tolist()


def test_a_real_engines_responses_are_trained_to_their_end_token_and_no_further() -> None:
    # Rows of one batch stop at different times; what the others sample meanwhile is not theirs.
    engine = TransformersEngine({"p": model_folder("tiny")})
    [completions] = generate(engine, [Request("p", tuple(range(10, 40)), 24, Sampling(40), seed=0)])
    turns = [replace(make_turn(prompt=(10, i), advantage=1.0), completion=c) for i, c in enumerate(completions)]
    batch = pack("p", [[turn] for turn in turns], Batching(), 1.0, last=True)
    lengths = [len(c.token_ids) for c in completions]
    assert batch.loss_mask.sum(1).tolist() == lengths
    assert len(set(lengths)) > 5
    for ids, mask, completion in zip(batch.token_ids, batch.loss_mask, completions, strict=True):
        trained = ids[mask].tolist()
        assert EOS not in trained[:-1]
        assert (trained[-1] == EOS) is (completion.finish_reason == "stop")


def test_a_turns_advantage_is_at_its_own_tokens_only() -> None:
    # Two turns of one conversation: the second's prompt holds the first's words, which are not its own.
    first, second = make_turn((5, 6, 7), (1,), advantage=0.5), make_turn((9,), (1, 5, 8), advantage=0.5)
    together = pack("p", [[first], [second]], Batching(), 4.0, last=True)
    assert together.loss_mask.int().tolist() == [[0, 1, 1, 1], [0, 0, 0, 1]]
    assert together.advantages.tolist() == [[0, 0.5, 0.5, 0.5], [0, 0, 0, 0.5]]
    apart = pack("p", [[first], [replace(second, advantage=-2.0)]], Batching(), 4.0, last=True)
    assert apart.advantages.tolist() == [[0, 0.5, 0.5, 0.5], [0, 0, 0, -2.0]]


@given(n=st.integers(1, 12), seed=st.integers(0, 50), budget=st.integers(1, 60), parts=st.integers(1, 3))
def test_exactly_the_sampled_ids_are_trained_in_order_once_per_pass(n: int, seed: int, budget: int, parts: int) -> None:
    turns = many(n, seed)
    batching = Batching(ppo_epochs=2, minibatches=parts, tokens_per_microbatch=budget)
    plan = batches(turns, batching, skip_zero=False)
    assert trained_ids(plan) == sorted([turn.completion.token_ids for turn in turns] * 2)


@given(seed=st.integers(0, 50), budget=st.integers(1, 80))
def test_a_microbatch_fits_the_budget_unless_one_response_alone_does_not(seed: int, budget: int) -> None:
    for batch in batches(many(10, seed), Batching(tokens_per_microbatch=budget), skip_zero=False):
        assert batch.token_ids.numel() <= budget or (batch.token_ids.shape[0] == 1 and batch.branch_ids.max() == 1)


@pytest.mark.parametrize(
    ("settings", "weights", "denominator"),
    [
        ({"aggregation": "token_mean"}, [1.0, 1.0], 6.0),
        ({"aggregation": "sequence_mean"}, [1 / 2, 1 / 4], 2.0),
        ({"aggregation": "constant", "constant_length": 8}, [1.0, 1.0], 16.0),
    ],
)
def test_weights_follow_the_aggregation(settings: dict[str, Any], weights: list[float], denominator: float) -> None:
    turns = [make_turn((5, 6), advantage=1.0), make_turn((5, 6, 7, 8), advantage=1.0)]
    [batch] = batches(turns, Batching(**settings))
    assert [batch.weights[batch.branch_ids == k].unique().tolist() for k in (1, 2)] == [[w] for w in weights]
    assert batch.denominator == denominator


@pytest.mark.parametrize(("aggregation", "mean"), [("token_mean", 2.6), ("sequence_mean", 2.0)])
def test_short_and_long_responses_weigh_as_the_aggregations_name_says(aggregation: Any, mean: float) -> None:
    turns = [make_turn((5,) * 2, advantage=1.0), make_turn((5,) * 8, advantage=3.0)]
    [batch] = batches(turns, Batching(aggregation=aggregation))
    assert float((batch.weights * batch.advantages).sum()) / batch.denominator == pytest.approx(mean)


def test_under_trajectory_mean_one_turn_weighs_as_much_as_nine() -> None:
    # Trajectory 0 has one turn of 2 tokens, trajectory 1 nine turns of 3, one of which has nothing to teach.
    turns = [make_turn((5, 6), (1, 2), advantage=1.0)]
    turns += [make_turn((7, 8, 9), (1, 2), branch=1, turn=t, advantage=0.0 if t == 8 else 3.0) for t in range(9)]
    turns += [make_turn((5, 6), (1, 2), branch=2, turn=t, advantage=1.0) for t in range(2)]
    plan = batches(turns, Batching(aggregation="trajectory_mean", tokens_per_microbatch=1))
    assert {batch.denominator for batch in plan} == {3.0}
    weights = [float(b.weights[b.loss_mask].unique()) for b in plan]
    # The eight equal ones that teach are one response of 8/27 a token, those of trajectories 0 and 2 one of 1/2 + 2/4.
    assert sorted(weights) == pytest.approx([8 / 27, 1.0])
    # (1 + 3 * 24 / 27 + 1) / 3
    loss = sum(float((b.weights * b.advantages).sum()) / b.denominator for b in plan)
    assert loss == pytest.approx((1 + 3 * 24 / 27 + 1) / 3)


def test_trajectory_mean_counts_the_tokens_of_a_trajectory_in_the_step_and_policy() -> None:
    # One turn of 1 and one of 3 tokens, of two policies: each is all that its policy's step has of the trajectory.
    turns = [make_turn((5,), advantage=1.0), make_turn((6, 7, 8), (4,), agent="b", policy="q", advantage=1.0)]
    turns += [make_turn((5, 6), (9,), tree=1, advantage=1.0)]
    plan = batches(turns, Batching(aggregation="trajectory_mean"), ("p", "q"))
    assert [(b.policy, b.denominator) for b in plan] == [("p", 2.0), ("q", 1.0)]
    assert plan[0].weights[plan[0].loss_mask].tolist() == [1.0, 0.5, 0.5]
    assert plan[1].weights[plan[1].loss_mask].tolist() == pytest.approx([1 / 3] * 3)


def test_any_split_adds_up_to_the_steps_own_mean() -> None:
    # 100 tokens of 2 and 900 of .5: (200 + 450) / 1000
    turns = [make_turn((5,) * 100, (10, i), advantage=2.0 if i == 0 else 0.5) for i in range(10)]
    for budget in (1, 250, 10_000):
        plan = batches(turns, Batching(tokens_per_microbatch=budget))
        assert {batch.denominator for batch in plan} == {1000.0}
        assert sum(float(b.advantages.sum()) / b.denominator for b in plan) == pytest.approx(0.65)


def test_tokens_that_are_not_trained_are_not_in_the_denominator() -> None:
    # Four prompt tokens, four of a response that was cut and is left out, four of loss 1: 4 / 4.
    turns = [
        make_turn((5,) * 4, (1, 2, 3, 4), advantage=1.0),
        make_turn((6,) * 4, (1, 2, 3, 4), advantage=1.0, cut=True),
    ]
    [batch] = batches(turns, Batching(mask_truncated=True))
    loss = aggregate(torch.ones_like(batch.weights), batch.weights, batch.loss_mask, batch.denominator)
    assert float(loss) == 1.0


@given(seed=st.integers(0, 30), budget=st.integers(1, 60))
def test_denominators_do_not_depend_on_the_budget(seed: int, budget: int) -> None:
    def denominators(budget: int) -> list[float]:
        plan = batches(many(9, seed), Batching(minibatches=2, tokens_per_microbatch=budget))
        return [batch.denominator for batch in plan if batch.last]

    assert denominators(budget) == denominators(10_000)


def test_every_policy_takes_the_same_number_of_steps_also_with_nothing_to_learn() -> None:
    turns = [make_turn(prompt=(10, i), advantage=1.0, policy="p") for i in range(5)]
    turns += [make_turn(advantage=1.0, policy="q"), make_turn(advantage=None, policy="r")]
    batching = Batching(ppo_epochs=2, minibatches=3, tokens_per_microbatch=5)
    plan = batches(turns, batching, ("p", "q", "r"))
    for policy in "pqr":
        own = [batch for batch in plan if batch.policy == policy]
        assert sum(batch.last for batch in own) == batching.steps_per_iteration == 6
        assert own[-1].last
    # A step's micro-batches are neighbours: its policy changes only after the last one.
    assert all(before.last for before, after in pairwise(plan) if before.policy != after.policy)
    empty = [batch for batch in plan if batch.policy == "r"]
    assert [(b.denominator, bool(b.loss_mask.any()), tuple(b.token_ids.shape)) for b in empty] == [
        (0.0, False, (1, 2))
    ] * 6


def test_frozen_policies_play_and_are_not_trained() -> None:
    turns = [make_turn((5,), advantage=1.0), make_turn((6,), advantage=1.0, policy="frozen")]
    assert trained_ids(batches(turns, policies=("p",))) == [(5,)]


def test_turns_without_an_advantage_are_out_of_the_loss_and_its_denominator() -> None:
    [batch] = batches([make_turn((5, 6), advantage=1.0), make_turn((7, 8), advantage=None, credit=None)])
    assert trained_ids([batch]) == [(5, 6)]
    assert batch.denominator == 2.0


def test_zero_advantages_are_not_computed_but_stay_in_the_denominator() -> None:
    turns = [make_turn((5, 6), advantage=1.0), make_turn((7, 8, 9), advantage=0.0)]
    [skipped] = batches(turns)
    [computed] = batches(turns, skip_zero=False)
    assert trained_ids([skipped]) == [(5, 6)]
    assert trained_ids([computed]) == [(5, 6), (7, 8, 9)]
    assert skipped.denominator == computed.denominator == 5.0
    [nothing] = batches(turns[1:])
    assert (nothing.denominator, nothing.last, bool(nothing.loss_mask.any())) == (3.0, True, False)


def test_cut_responses_are_left_out_only_when_asked() -> None:
    turns = [make_turn((5, 6), advantage=1.0), make_turn((7, 8, 9), advantage=-1.0, cut=True)]
    assert trained_ids(batches(turns)) == [(5, 6), (7, 8, 9)]
    [masked] = batches(turns, Batching(mask_truncated=True))
    assert trained_ids([masked]) == [(5, 6)]
    assert masked.denominator == 2.0


@pytest.mark.parametrize("logprobs", [(), (-0.5,), (-0.5, -1.5, -2.5), (-0.5, math.nan), (-0.5, -math.inf)])
def test_a_missing_sampler_log_prob_is_refused_and_never_taken_for_a_number(logprobs: tuple[float, ...]) -> None:
    turn = make_turn((5, 6), advantage=1.0)
    lacking = replace(turn, completion=replace(turn.completion, logprobs=logprobs))
    with pytest.raises(ValueError, match=r"^logprobs of TurnKey.*: got . finite .*, expected one per token, 2$"):
        batches([turn, replace(lacking, advantage=2.0)])


def test_responses_to_one_prompt_share_a_row_and_other_prompts_do_not() -> None:
    turns = [
        make_turn((5,), (1, 2), advantage=1.0),
        make_turn((6,), (1,), advantage=1.0),
        make_turn((7,), (1, 2), advantage=1.0),
    ]
    [batch] = batches(turns)
    assert batch.token_ids.tolist() == [[1, 2, 5, 7], [1, 6, 0, 0]]


def test_passes_are_shuffled_differently_and_the_same_seed_shuffles_the_same() -> None:
    turns = [make_turn((20 + i,), (10, i), advantage=1.0) for i in range(8)]
    plan = batches(turns, Batching(ppo_epochs=2, minibatches=4))
    again = batches(turns, Batching(ppo_epochs=2, minibatches=4))
    assert [b.token_ids.tolist() for b in plan] == [b.token_ids.tolist() for b in again]
    steps = [trained_ids([batch]) for batch in plan]
    assert steps[:4] != steps[4:]
    assert sorted(chain(*steps[:4])) == sorted(chain(*steps[4:]))


def test_another_device_gets_every_tensor() -> None:
    [batch] = batches([make_turn(advantage=1.0)])
    moved = batch.to("meta")
    assert moved.token_ids.device == moved.weights.device == torch.device("meta")
    assert (moved.policy, moved.denominator, moved.last, moved.old_logprobs) == ("p", batch.denominator, True, None)


@pytest.mark.parametrize(
    "settings",
    [
        {"ppo_epochs": 0},
        {"minibatches": 0},
        {"tokens_per_microbatch": 0},
        {"aggregation": "constant"},
        {"constant_length": 5},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"got .*, expected"):
        Batching(**settings)


def test_equal_responses_are_computed_once_and_weigh_as_many() -> None:
    same = [make_turn((5, 6), (1, 2), advantage=1.0) for _ in range(3)]
    other = make_turn((5, 6), (1, 2), advantage=-3.0)
    [batch] = batches([*same, other])
    assert batch.branch_ids.tolist() == [[0, 0, 1, 1, 2, 2]]
    assert batch.weights.tolist() == [[0, 0, 3, 3, 1, 1]]
    assert batch.denominator == 8.0
