from __future__ import annotations

import random

import pytest
from transformers import AutoModelForCausalLM

from atgrpo.policies.sources import model_folder
from benchmarks.pooling_direction import STEP, Direction, pinned, pushes, slopes_of
from tests.rollout.helpers import make_rollout, make_turn

CALL = 60


def odds(model: object, prompts: list[tuple[int, ...]]) -> float:
    """Mean log-odds of a call, by the log-probabilities of the one token and of all others."""
    import torch

    with torch.no_grad():
        first = torch.stack([model(torch.tensor([p])).logits[0, -1].double().log_softmax(-1) for p in prompts])  # type: ignore[operator]
    call = first[:, CALL]
    return float((call - (1 - call.exp()).log()).mean())


def test_the_two_copies_differ_by_the_step_along_the_log_odds() -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder("tiny")).eval()
    prompts: list[tuple[int, ...]] = [(2, 30, 40), (2, 31)]
    further, back, rate = Direction(model, prompts, CALL).copies()
    assert odds(further, prompts) - odds(back, prompts) == pytest.approx(2 * STEP, rel=1e-3)
    assert 0 < rate < 1
    turns = [make_turn(ids=(CALL, 5), prompt=prompt) for prompt in prompts]
    # d log p = (1 - p) d log-odds, and p is small.
    assert sum(slopes_of(further, back, turns)) / 2 == pytest.approx(1, abs=0.1)


def test_padding_does_not_move_a_slope() -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder("tiny")).eval()
    further, back, _ = Direction(model, [(2, 30, 40)], CALL).copies()
    short, long = make_turn(ids=(CALL,), prompt=(2, 31)), make_turn(ids=(7,), prompt=(2, 30, 40, 41))
    assert slopes_of(further, back, [short, long])[0] == pytest.approx(slopes_of(further, back, [short])[0], abs=1e-6)


def test_a_trajectory_earns_the_same_in_all_its_turns() -> None:
    turns = [make_turn(branch=0, turn=0), make_turn(branch=0, turn=1), make_turn(branch=1)]
    sure = pinned(make_rollout(*turns), direct=0.0, tool=1.0, rng=random.Random(0))
    assert [t.rewards.credit for t in sure.turns] == [1, 1, 0]


def test_updates_by_hand() -> None:
    """A call that won, of two turns, against an answer that lost: z over 2 votes is +-.707, over 3 +.577 and -1.155."""
    turns = [make_turn(credit=1.0, branch=0), make_turn(credit=1.0, branch=0, turn=1), make_turn(credit=0.0, branch=1)]
    found = pushes([make_rollout(*turns)], slopes=[0.5, -0.5], rate=0.5)
    assert found["grpo", True] == pytest.approx((0.5 * 0.7071 + 0.5 * 0.7071) / (2 * 0.25), abs=1e-4)
    assert found["pooled", True] == pytest.approx((0.5 * 0.5774 + 0.5 * 1.1547) / (2 * 0.25), abs=1e-4)
    assert found["grpo", False] == pytest.approx((0.25 + 0.25) / 0.5)
    assert found["pooled", False] == pytest.approx((0.5 / 3 + 0.5 * 2 / 3) / 0.5)
