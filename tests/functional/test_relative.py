from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.functional.relative import Form, RelativeWeights, agreement_weights, relative_weights

FORMS = get_args(Form)


def weights(own: list[float], group: float, form: Form, **settings: Any) -> RelativeWeights:
    return relative_weights(torch.tensor([own]), torch.tensor([group]), form=form, **settings)


def listed(result: RelativeWeights) -> list[float]:
    return result.weights[0].tolist()


# own advantages 3 and -1, the team's 1: S = 2, relative 3/2 and -1/2
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("ones", [1.0, 1.0]),
        ("linear", [1.5, -0.5]),
        ("clip", [2.0, 0.5]),
        ("sigmoid", [2 / (1 + math.exp(-1.5)), 2 / (1 + math.exp(0.5))]),
        ("softmax", [2 / (1 + math.exp(-2)), 2 / (1 + math.exp(2))]),
    ],
)
def test_every_form_by_hand(form: Form, expected: list[float]):
    got = weights([3.0, -1.0], 1.0, form)
    assert listed(got) == pytest.approx(expected)
    assert got.relative.tolist() == [[1.5, -0.5]]
    assert got.sums.tolist() == [2.0]


def test_a_sum_of_zero_is_divided_by_eps_and_counts_as_positive():
    got = weights([1.0, -1.0], 0.2, "linear", eps=0.5)
    assert listed(got) == pytest.approx([0.4, -0.4])


@pytest.mark.parametrize(("own", "expected"), [([0.3, -0.2], [0.6, -0.4]), ([0.2, -0.3], [-0.4, 0.6])])
def test_a_small_sum_keeps_its_sign(own: list[float], expected: list[float]):
    assert listed(weights(own, 1.0, "linear", eps=0.5)) == pytest.approx(expected)


@pytest.mark.parametrize("form", FORMS)
def test_guard_one_leaves_the_loss_as_it_is_near_zero_and_only_there(form: Form):
    assert listed(weights([0.3, -0.2], 1.0, form, guard="one", eps=0.5)) == [1.0, 1.0]
    beyond = listed(weights([3.0, -1.0], 1.0, form, guard="one", eps=0.5))
    assert beyond == listed(weights([3.0, -1.0], 1.0, form, guard="floor", eps=0.5))


@pytest.mark.parametrize("form", [f for f in FORMS if f != "linear"])
def test_no_advantage_at_all_gives_weight_one(form: Form):
    assert listed(weights([0.0, 0.0, 0.0], 0.0, form)) == [1.0, 1.0, 1.0]


def test_the_limit_bounds_what_the_raw_quotient_does_not():
    assert listed(weights([50.0, -49.0], 100.0, "linear", limit=5.0)) == [5.0, -5.0]
    assert listed(weights([50.0, -49.0], 100.0, "linear", limit=None)) == [5000.0, -4900.0]


def test_linear_forgets_the_sign_of_an_agents_own_advantage():
    own = [3.0, -1.0]
    pushed = [w * a for w, a in zip(listed(weights(own, 1.0, "linear")), own, strict=True)]
    assert pushed == [4.5, 0.5]


def test_one_shared_advantage_makes_softmax_exactly_one():
    assert listed(weights([0.7, 0.7, 0.7], 0.7, "softmax")) == pytest.approx([1.0, 1.0, 1.0], abs=1e-7)


def test_weights_carry_no_gradient():
    own, group = torch.randn(4, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    got = relative_weights(own, group, form="softmax")
    assert not any(t.requires_grad for t in (got.weights, got.relative, got.sums))


@given(
    st.lists(st.lists(st.floats(-5, 5, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    st.floats(-5, 5, width=32),
    st.sampled_from(FORMS),
    st.sampled_from(["floor", "one"]),
)
def test_weights_are_finite_and_bounded_forms_stay_in_their_bounds(
    own: list[list[float]], group: float, form: Form, guard: Any
):
    rows = torch.tensor(own)
    got = relative_weights(rows, torch.full((len(own),), group), form=form, guard=guard).weights
    assert bool(got.isfinite().all())
    if form != "linear":
        assert 0 <= float(got.min()) <= float(got.max()) <= (3 if form == "softmax" else 2)
    if form == "softmax":
        torch.testing.assert_close(got.mean(-1), torch.ones(len(own)))


@given(st.permutations([0, 1, 2]))
def test_the_order_of_the_agents_does_not_matter(order: list[int]):
    own, group = torch.tensor([[2.0, -0.5, 0.25]]), torch.tensor([1.0])
    for form in FORMS:
        got = relative_weights(own[:, order], group, form=form).weights
        torch.testing.assert_close(got, relative_weights(own, group, form=form).weights[:, order])


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_advantages": torch.zeros(3)}, r"got \(3,\), expected \(2,\)"),
        ({"form": "cubic"}, "form: got 'cubic', expected one of ones"),
        ({"guard": "none"}, "guard: got 'none', expected one of floor, one"),
        ({"eps": 0.0}, "eps: got 0.0"),
        ({"limit": -1.0}, "limit: got -1.0"),
    ],
)
def test_misuse_is_refused(change: dict[str, Any], message: str):
    fitting = {"advantages": torch.zeros(2, 3), "group_advantages": torch.zeros(2), "form": "ones"}
    with pytest.raises(ValueError, match=message):
        relative_weights(**(fitting | change))


def test_agreement_counts_more_where_agent_and_team_agree():
    own = torch.tensor([[2.0, -0.5, 0.0], [2.0, -0.5, 0.0], [0.1, -3.0, 1.0]])
    found = agreement_weights(own, torch.tensor([0.4, -0.4, 5.0]), strength=0.5)
    torch.testing.assert_close(found, torch.tensor([[1.2, 0.8, 1.0], [0.8, 1.2, 1.0], [2.0, 0.0, 2.0]]))
    assert torch.equal(agreement_weights(own, torch.randn(3), strength=0.0), torch.ones(3, 3))


def test_agreement_counts_bad_luck_as_much_as_good():
    """The first agent gains and loses alike, and the team with it: nothing may be left to push what was sampled."""
    own, group = torch.tensor([[1.0, 0.5], [-1.0, -0.5]]), torch.tensor([1.5, -1.5])
    assert (agreement_weights(own, group) * own)[:, 0].sum().item() == 0.0
    relative = relative_weights(own, group, form="softmax").weights
    assert (relative * own)[:, 0].sum().item() == pytest.approx(2 * (math.e**0.5 - 1) / (math.e**0.5 + 1))


@pytest.mark.usefixtures("unchecked_annotations")
def test_misuse_of_agreement_is_refused():
    with pytest.raises(ValueError, match=r"got \(3,\), expected \(2,\)"):
        agreement_weights(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="strength: got -1"):
        agreement_weights(torch.zeros(2, 3), torch.zeros(2), strength=-1)
