"""The weights that play are the weights that are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from atgrpo.engines.base import Engine, EngineError
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.rollout.collate import Batching, pack
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.team import Team
from atgrpo.types import Sample, Turn
from tests.cli.letters import Letters

ENGINES: dict[str, Callable[..., Engine]] = {
    "transformers": TransformersEngine,
    "vllm": partial(VLLMEngine, dtype="float32", max_model_len=256, kv_cache_gb=0.0625, enforce_eager=True),
}
SAMPLER = TreeSampler(turns=1, branches=3, max_tokens=8)


@pytest.fixture(scope="module", params=ENGINES)
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    policies = {"a": CausalLMPolicy("tiny"), "b": CausalLMPolicy("tiny-untied")}
    team = Team(
        engine=ENGINES[request.param],
        environment=Letters,
        agents={"tool": "a", "reasoner": "b"},
        policies=policies,
        max_prompt_tokens=200,
    )
    yield team
    team.close()


def play(team: Team) -> dict[str, list[Turn]]:
    [rollout] = team.play([Sample("s", "Say something.", "!")], SAMPLER, seed=3)
    return {policy: [turn for turn in rollout.turns if turn.policy == policy] for policy in "ab"}


@torch.no_grad()
def gap(policy: Any, turns: list[Turn]) -> float:
    """Largest difference between the log-probs that were sampled and the policy's own."""
    batch = pack("p", [turns], Batching(), 1.0, last=True)
    return float((policy(batch, 1.0).logprobs - batch.sampler_logprobs)[batch.loss_mask].abs().max())


@torch.no_grad()
def perturb(policy: Any) -> None:
    for parameter in policy.parameters():
        parameter.add_(0.02 * torch.randn_like(parameter))


# trl issue 5312: weights were synced, then the engine slept and woke with older ones.
def test_trained_weights_play_after_a_sleep_and_the_trainers_own_stay_as_they_are(team: Team) -> None:
    team.push()
    for _ in range(2):
        for policy in team.policies.values():
            perturb(policy)
        trained = {name: [p.clone() for p in policy.parameters()] for name, policy in team.policies.items()}  # type: ignore[attr-defined]
        team.engine.sleep()
        team.push()
        turns = play(team)
        assert {name: gap(team.policies[name], turns[name]) < 1e-4 for name in "ab"} == {"a": True, "b": True}
        for name, policy in team.policies.items():
            now = list(policy.parameters())  # type: ignore[attr-defined]
            assert all(torch.equal(p, before) for p, before in zip(now, trained[name], strict=True))


def test_each_policy_plays_with_its_own_weights(team: Team) -> None:
    team.push()
    before = play(team)["a"]
    perturb(team.policies["b"])
    team.push()
    turns = play(team)
    assert [turn.completion for turn in turns["a"]] == [turn.completion for turn in before]
    assert gap(team.policies["b"], turns["b"]) < 1e-4
    perturb(team.policies["a"])
    assert gap(team.policies["a"], turns["a"]) > 1e-3
    team.push()
    assert gap(team.policies["a"], play(team)["a"]) < 1e-4


def test_a_parameter_that_the_engine_does_not_know_stops_the_run(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    policy: Any = team.policies["a"]
    wrapped = [(f"module.{name}", tensor) for name, tensor in policy.export_weights()]
    monkeypatch.setattr(policy, "export_weights", lambda: iter(wrapped))
    with pytest.raises(EngineError, match=r"policy 'a'.*module\.model.* is unknown"):
        team.push()


def test_every_tensor_of_the_fallback_follows_the_trainers() -> None:
    policy = CausalLMPolicy("tiny")
    engine = TransformersEngine({"p": policy.folder})
    served = dict(engine._served["p"].model.state_dict())
    before = {name: tensor.clone() for name, tensor in served.items()}
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1.0)
    engine.load_weights("p", policy.export_weights())
    assert "lm_head.weight" in before
    torch.testing.assert_close(served, {name: tensor + 1 for name, tensor in before.items()}, rtol=0, atol=0)
