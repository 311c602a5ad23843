from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from atgrpo.functional.gae import generalized_advantages

HALF = {"gamma": 0.5, "lam": 0.5}
NEVER = [False, False, False]


def advantages(
    rewards: list[float],
    values: list[float],
    following: list[float],
    terminated: list[bool] = NEVER,
    ended: list[bool] = NEVER,
    **discounts: float,
) -> list[float]:
    floats = (torch.tensor(row, dtype=torch.float32) for row in (rewards, values, following))
    flags = (torch.tensor(row) for row in (terminated, ended))
    return generalized_advantages(*floats, *flags, **(HALF | discounts)).tolist()


def test_an_unfinished_episode_by_hand():
    # delta: 1 + .5*4 - 2 = 1, 2 + .5*8 - 4 = 2, 3 + .5*2 - 8 = -4
    # A: 1 + .25*1 = 1.25, 2 + .25*-4 = 1, -4
    assert advantages([1, 2, 3], [2, 4, 8], [4, 8, 2]) == [1.25, 1.0, -4.0]


def test_success_ends_without_a_value_behind_it():
    # delta_1 = 2 + 0 - 4 = -2 whatever the value of the state reached
    got = advantages([1, 2, 3], [2, 4, 8], [4, 100, 2], [False, True, False], [False, True, False])
    assert got == [0.5, -2.0, -4.0]


def test_a_time_limit_counts_the_value_of_the_state_it_cut_off():
    # delta_1 = 2 + .5*6 - 4 = 1; the next episode's advantage does not flow back, and its value 8 is not used
    assert advantages([1, 2, 3], [2, 4, 8], [4, 6, 2], NEVER, [False, True, False]) == [1.25, 1.0, -4.0]


def test_value_targets_at_a_time_limit_are_those_of_an_episode_that_goes_on():
    # reward 1 for ever and gamma 1/2: V = 2 everywhere, so no step is a surprise, the last one included
    values = [2.0, 2.0, 2.0]
    got = advantages([1, 1, 1], values, values, NEVER, [False, False, True], lam=1.0)
    assert [a + v for a, v in zip(got, values, strict=True)] == [2.0, 2.0, 2.0]
    cut = advantages([1, 1, 1], values, values, [False, False, True], [False, False, True], lam=1.0)
    assert [a + v for a, v in zip(cut, values, strict=True)] == [1.75, 1.5, 1.0]


def test_lambda_one_is_the_discounted_return_less_the_value():
    # 1 + .5*2 + .25*3 + .125*2 = 3, less 2
    assert advantages([1, 2, 3], [2, 4, 8], [4, 8, 2], lam=1.0)[0] == 1.0


def test_lambda_zero_is_one_step():
    assert advantages([1, 2, 3], [2, 4, 8], [4, 8, 2], lam=0.0) == [1.0, 2.0, -4.0]


def test_agents_and_environments_do_not_mix():
    torch.manual_seed(0)
    floats = [torch.randn(6, 3, 2) for _ in range(3)]
    terminated, limit = torch.rand(6, 3, 1) < 0.2, torch.rand(6, 3, 1) < 0.2
    flags = [f.expand(6, 3, 2) for f in (terminated, terminated | limit)]
    together = generalized_advantages(*floats, *flags, gamma=0.9, lam=0.8)
    for i in range(3):
        for agent in range(2):
            own = generalized_advantages(*(x[:, i, agent] for x in (*floats, *flags)), gamma=0.9, lam=0.8)
            assert together[:, i, agent].tolist() == own.tolist()


@given(st.integers(1, 5), st.integers(0, 2**16))
def test_an_end_cuts_a_batch_into_parts_that_could_have_been_apart(cut: int, seed: int):
    torch.manual_seed(seed)
    rewards, values, following = torch.randn(3, 6)
    ended = torch.zeros(6, dtype=torch.bool)
    ended[cut - 1] = True
    never = torch.zeros(6, dtype=torch.bool)
    whole = generalized_advantages(rewards, values, following, never, ended, gamma=0.99, lam=0.95)
    for part in (slice(None, cut), slice(cut, None)):
        rows: list[Tensor] = [x[part] for x in (rewards, values, following, never, ended)]
        assert whole[part].tolist() == generalized_advantages(*rows, gamma=0.99, lam=0.95).tolist()


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(2)}, r"shape of values: got \(2,\)"),
        ({"gamma": 1.1}, "gamma: got 1.1"),
        ({"lam": -0.1}, "lam: got -0.1"),
        ({"terminated": torch.tensor([True, False, False])}, "ended: got False at a terminated step"),
    ],
)
def test_misuse_is_refused(change: dict[str, Any], message: str):
    zeros, never = torch.zeros(3), torch.zeros(3, dtype=torch.bool)
    fitting = {"rewards": zeros, "values": zeros, "next_values": zeros, "terminated": never, "ended": never}
    with pytest.raises(ValueError, match=message):
        generalized_advantages(**(fitting | {"gamma": 0.9, "lam": 0.9} | change))
