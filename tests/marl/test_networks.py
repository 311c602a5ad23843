from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from atgrpo.marl.actors import Actor, CategoricalActor, GaussianActor
from atgrpo.marl.critics import Critic, Scale
from atgrpo.marl.networks import BatchedMLP, clip_gradients, tanh_
from atgrpo.marl.seeding import generator
from atgrpo.marl.types import Samples, Spec

SPEC = Spec(agents=3, observation=5, action=4)
SEEN = torch.randn(2, 6, 3, 5, generator=torch.Generator().manual_seed(0))
"""Two seeds, six rows, three agents."""


def draws(*seeds: int) -> list[torch.Generator]:
    return [generator(seed, 1, 0) for seed in seeds]


def test_a_batch_of_networks_is_each_of_them():
    both = BatchedMLP([(7,), (8,)], (5, 16, 2), 1.0, 0)
    x = torch.randn(2, 6, 5)
    for i, seed in enumerate((7, 8)):
        alone = BatchedMLP([(seed,)], (5, 16, 2), 1.0, 0)
        torch.testing.assert_close(both(x)[i], alone(x[i : i + 1])[0])
    plain = torch.tanh(x[0] @ both.weights[0][0] + both.biases[0][0]) @ both.weights[1][0] + both.biases[1][0]
    torch.testing.assert_close(both(x)[0], plain)


def test_the_quick_tanh_is_tanh_with_its_gradient():
    x = torch.linspace(-30, 30, 4001, dtype=torch.float64)
    torch.testing.assert_close(tanh_(x.float()), torch.tanh(x).float(), atol=2e-7, rtol=0)
    small = torch.tensor([-2.0, 0.0, 0.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: tanh_(x * 1), small)


def test_minibatches_are_each_seeds_own_samples():
    rows = torch.arange(12.0).view(2, 3, 2)
    samples = Samples(rows.unsqueeze(-1), rows, rows, rows, rows, rows, rows, rows[..., 0], None)
    found = samples.take(torch.tensor([[2, 0], [1, 1]]))
    expected = torch.tensor([[[4.0, 5.0], [0.0, 1.0]], [[8.0, 9.0], [8.0, 9.0]]])
    assert torch.equal(found.observations, expected.unsqueeze(-1))
    assert torch.equal(found.targets, expected)
    assert torch.equal(found.group_values, expected[..., 0])
    assert found.group_targets is None


def test_weights_start_orthogonal_and_differ_between_seeds_and_streams():
    first, other = BatchedMLP([(7,), (8,)], (5, 5), 0.5, 0), BatchedMLP([(7,)], (5, 5), 0.5, 1)
    square = first.weights[0][0]
    torch.testing.assert_close(square @ square.T, 0.25 * torch.eye(5), atol=1e-6, rtol=0)
    assert not torch.equal(first.weights[0][0], first.weights[0][1])
    assert not torch.equal(first.weights[0][0], other.weights[0][0])


def test_a_seeds_gradient_is_clipped_by_its_own_norm():
    parameter = nn.Parameter(torch.zeros(2, 2))
    parameter.grad = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    norms = clip_gradients([parameter], 2, 1.0)
    torch.testing.assert_close(norms, torch.tensor([5.0, 0.5]))
    torch.testing.assert_close(parameter.grad, torch.tensor([[0.6, 0.8], [0.3, 0.4]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", [GaussianActor, CategoricalActor])
def test_an_agent_acts_on_its_own_observation_alone(kind: type[Actor], shared: bool):
    actor = kind([0, 1], SPEC, shared=shared)
    changed = SEEN.clone()
    changed[:, :, 1] += 1
    actions, _ = actor.act(SEEN, draws(0, 1))
    before, after = actor.score(SEEN, actions)[0], actor.score(changed, actions)[0]
    assert torch.equal(before[:, :, [0, 2]], after[:, :, [0, 2]])
    assert not torch.equal(before[:, :, 1], after[:, :, 1])


def test_only_a_shared_actor_treats_agents_alike():
    alike = SEEN[:, :, :1].expand(-1, -1, 3, -1)
    for shared in (True, False):
        means = GaussianActor([0, 1], SPEC, shared=shared).best(alike)
        assert torch.allclose(means[:, :, 0], means[:, :, 1]) == shared


def test_gaussian_log_probs_and_entropy_are_torchs():
    actor = GaussianActor([0, 1], SPEC, log_std=-0.7)
    actions, sampled = actor.act(SEEN, draws(0, 1))
    scored, entropy = actor.score(SEEN, actions)
    normal = torch.distributions.Normal(actor.best(SEEN), actor.log_std.exp())
    torch.testing.assert_close(scored, normal.log_prob(actions).sum(-1))
    torch.testing.assert_close(entropy, normal.entropy().sum(-1).expand_as(entropy))
    torch.testing.assert_close(sampled, scored)


def test_categorical_log_probs_are_torchs_and_samples_follow_them():
    actor = CategoricalActor([0], SPEC)
    with torch.no_grad():
        actor.network.mlp.biases[-1] += torch.tensor([0.0, 1.0, -1.0, 0.5])
    seen = SEEN[:1, :1].expand(1, 4000, 3, 5)
    actions, sampled = actor.act(seen, draws(0))
    found = torch.distributions.Categorical(logits=actor.network(seen))
    torch.testing.assert_close(sampled, found.log_prob(actions))
    torch.testing.assert_close(actor.score(seen, actions)[1], found.entropy())
    shares = torch.stack([(actions[0, :, 0] == a).float().mean() for a in range(4)])
    torch.testing.assert_close(shares, found.probs[0, 0, 0], atol=0.03, rtol=0)


@pytest.mark.parametrize("kind", [GaussianActor, CategoricalActor])
def test_what_a_seed_draws_does_not_depend_on_the_others(kind: type[Actor]):
    both, _ = kind([0, 1], SPEC).act(SEEN, draws(0, 1))
    alone, _ = kind([1], SPEC).act(SEEN[1:], draws(1))
    torch.testing.assert_close(both[1:], alone)


@pytest.mark.parametrize(("view", "sees"), [("local", False), ("central", True)])
def test_only_a_central_critic_sees_the_others(view: str, sees: bool):
    critic = Critic([0, 1], SPEC, view, (8,), True)  # type: ignore[arg-type]
    changed = SEEN.clone()
    changed[:, :, 1] += 1
    assert critic(SEEN).shape == (2, 6, 3)
    assert torch.equal(critic(SEEN)[..., 0], critic(changed)[..., 0]) == (not sees)


def scale_after(*targets: list[float]) -> Scale:
    scale = Scale(1, True, decay=0.5)
    for rows in targets:
        scale.update(torch.tensor([rows]))
    return scale


def test_the_scale_of_values_by_hand():
    # once: mean 3, mean square 10, deviation 1, free of the start at 0
    once = scale_after([2.0, 4.0])
    torch.testing.assert_close(once.normalised(torch.tensor([[4.0, 3.0]])), torch.tensor([[1.0, 0.0]]))
    # then 9, 9: shares 1/4 and 1/2 of 3/4: mean (3 + 2 * 9) / 3 = 7, square (10 + 2 * 81) / 3, deviation sqrt(25/3)
    twice = scale_after([2.0, 4.0], [9.0, 9.0])
    expected = torch.tensor([[7.0 + (25 / 3) ** 0.5]])
    torch.testing.assert_close(twice.restored(torch.tensor([[1.0]])), expected)


def test_restoring_undoes_normalising_and_alike_targets_do_not_blow_up():
    values: Tensor = torch.randn(1, 5)
    for scale in (scale_after([2.0, 4.0]), scale_after([3.0, 3.0]), Scale(1, True), Scale(1, False)):
        torch.testing.assert_close(scale.restored(scale.normalised(values)), values)
        assert bool(scale.normalised(values).isfinite().all())
    assert torch.equal(Scale(1, True).normalised(values), values)
