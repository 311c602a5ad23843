"""Several adapters on one model: each real engine serves them apart and follows the trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from atgrpo.engines.base import Engine, EngineError, generate
from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.policies.lora import LoRAPolicy
from atgrpo.rollout.collate import Batching, pack
from atgrpo.types import Completion, Request
from tests.engines.helpers import LONG_PROMPT, ask, ids
from tests.policies.helpers import learn, of_branch
from tests.rollout.helpers import make_turn

RANKS = {"a": 16, "b": 4, "base": 8}
"""The last is never trained."""


def build(**settings: Any) -> dict[str, LoRAPolicy]:
    policies: dict[str, LoRAPolicy] = {}
    for name, r in RANKS.items():
        policies[name] = LoRAPolicy("tiny", name=name, r=r, peers=policies, **settings)
    return policies


@pytest.fixture(scope="module")
def starts() -> dict[str, LoRAPolicy]:
    """What the engines are started with."""
    return build()


def served(policies: Mapping[str, LoRAPolicy]) -> tuple[dict[str, Path], dict[str, Path]]:
    return {n: p.folder for n, p in policies.items()}, {n: p.adapter for n, p in policies.items()}


@pytest.fixture(scope="module")
def vllm_lora(starts: Mapping[str, LoRAPolicy]) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(*served(starts), dtype="float32", max_model_len=1024, kv_cache_gb=0.0625, enforce_eager=True)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def transformers_lora(starts: Mapping[str, LoRAPolicy]) -> TransformersEngine:
    return TransformersEngine(*served(starts), batch_size=16)


@pytest.fixture
def policies() -> dict[str, LoRAPolicy]:
    return build()


@pytest.fixture(params=["vllm", "transformers"])
def engine(request: pytest.FixtureRequest, policies: Mapping[str, LoRAPolicy]) -> Engine:
    """Each real engine, with fresh adapters, whatever the test before pushed."""
    started: Engine = request.getfixturevalue(f"{request.param}_lora")
    for name, policy in policies.items():
        started.load_weights(name, policy.export_weights())
    return started


def gap(policy: LoRAPolicy, request: Request, completions: list[Completion]) -> float:
    """Largest difference between the engine's and the trainer's log-probs."""
    turns = [make_turn(c.token_ids, request.prompt_ids, advantage=1.0) for c in completions]
    worst = 0.0
    for turn, completion in zip(turns, completions, strict=True):
        batch = pack("p", [[turn]], Batching(), 1.0, last=True)
        with torch.no_grad():
            logprobs = of_branch(policy(batch, request.sampling.temperature).logprobs, batch, 1)
        worst = max(worst, float((logprobs - torch.tensor(completion.logprobs)).abs().max()))
    return worst


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_the_trainers_before_and_after_an_update(
    engine: Engine, policies: Mapping[str, LoRAPolicy], temperature: float
) -> None:
    requests = [ask(name, temperature=temperature) for name in RANKS]
    for _ in range(3):
        for request, completions in zip(requests, generate(engine, requests), strict=True):
            assert gap(policies[request.policy], request, completions) < 1e-4
        for name in ("a", "b"):
            learn(policies[name])
            engine.load_weights(name, policies[name].export_weights())
    [of_a, of_b, of_base] = generate(engine, requests)
    assert gap(policies["b"], requests[0], of_a) > 1e-2 < gap(policies["a"], requests[1], of_b)
    assert gap(policies["a"], requests[2], of_base) > 1e-2


def test_an_update_of_one_policy_changes_its_answers_and_no_others(
    engine: Engine, policies: Mapping[str, LoRAPolicy]
) -> None:
    learn(policies["b"])
    engine.load_weights("b", policies["b"].export_weights())
    requests = [ask(name) for name in RANKS]
    a, b, base = generate(engine, requests)
    learn(policies["a"])
    engine.load_weights("a", policies["a"].export_weights())
    a_after, b_after, base_after = generate(engine, requests)
    assert ids(a_after) != ids(a)
    assert (b_after, base_after) == (b, base)
    assert ids(b) != ids(base)


def test_answers_do_not_depend_on_whose_requests_are_in_the_batch(
    engine: Engine, policies: Mapping[str, LoRAPolicy]
) -> None:
    for name in ("a", "b"):
        learn(policies[name])
        engine.load_weights(name, policies[name].export_weights())
    requests = [ask(name, LONG_PROMPT[:k], n=2, seed=k) for k in (20, 33, 70) for name in RANKS]
    together = generate(engine, requests)
    assert [ids(completions) for completions in together] == [ids(generate(engine, [r])[0]) for r in requests]


def test_the_model_is_loaded_once_and_no_push_touches_it(
    vllm_lora: VLLMEngine, transformers_lora: TransformersEngine, policies: Mapping[str, LoRAPolicy]
) -> None:
    def weights(model: nn.Module) -> dict[str, torch.Tensor]:
        return {n: p.detach().clone() for n, p in model.named_parameters() if "lora_" not in n}

    [llm] = vllm_lora._llms.values()
    [model] = {id(served.model): served.model for served in transformers_lora._served.values()}.values()
    before = llm.apply_model(weights)[0], weights(model)
    learn(policies["a"])
    for engine in (vllm_lora, transformers_lora):
        engine.load_weights("a", policies["a"].export_weights())
        generate(engine, [ask("a")])
    for now, then in zip((llm.apply_model(weights)[0], weights(model)), before, strict=True):
        assert now.keys() == then.keys() and all(torch.equal(now[name], then[name]) for name in then)


def test_prefixes_that_the_old_adapter_computed_are_not_found_and_the_others_are(
    vllm_lora: VLLMEngine, policies: Mapping[str, LoRAPolicy]
) -> None:
    requests = {name: ask(name, LONG_PROMPT, n=1, max_tokens=1) for name in RANKS}
    generate(vllm_lora, list(requests.values()))
    learn(policies["a"])
    vllm_lora.load_weights("a", policies["a"].export_weights())
    vllm_lora.stats()
    [completions] = generate(vllm_lora, [requests["a"]])
    assert vllm_lora.stats() == {"prefix_cache_hit_rate": 0.0}
    assert gap(policies["a"], requests["a"], completions) < 1e-4
    for name in RANKS:
        generate(vllm_lora, [requests[name]])
        assert vllm_lora.stats() == {"prefix_cache_hit_rate": 288 / 300}


def test_two_hundred_pushes_leave_three_adapters_and_no_file(
    vllm_lora: VLLMEngine, policies: Mapping[str, LoRAPolicy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atgrpo.scratch.SHARED_MEMORY", tmp_path)
    [llm] = vllm_lora._llms.values()
    weights = dict(policies["a"].export_weights())
    for _ in range(200):
        vllm_lora.load_weights("a", weights.items())
    assert llm.list_loras() == {1, 2, 3}
    assert list(tmp_path.iterdir()) == []
    [completions] = generate(vllm_lora, [ask("a")])
    assert gap(policies["a"], ask("a"), completions) < 1e-4


def test_a_partial_push_is_an_error_and_changes_nothing(engine: Engine, policies: Mapping[str, LoRAPolicy]) -> None:
    [before] = generate(engine, [ask("b")])
    learn(policies["b"])
    weights = list(policies["b"].export_weights())
    with pytest.raises(EngineError, match=r"policy 'b'.*down_proj\.lora_B\.weight was not pushed"):
        engine.load_weights("b", weights[:-1])
    with pytest.raises(EngineError, match=r"lora_A\.weight is \(16, 64\), expected \(4, 64\)"):
        engine.load_weights("b", policies["a"].export_weights())
    [after] = generate(engine, [ask("b")])
    assert after == before
    engine.load_weights("b", weights)
    [now] = generate(engine, [ask("b")])
    assert gap(policies["b"], ask("b"), now) < 1e-4


def test_one_policy_is_pushed_while_another_samples(engine: Engine, policies: Mapping[str, LoRAPolicy]) -> None:
    [expected] = generate(engine, [ask("b", n=1)])
    engine.submit(0, ask("b", n=1))
    learn(policies["a"])
    engine.load_weights("a", policies["a"].export_weights())
    with pytest.raises(EngineError, match="policy 'b' were pushed while it was sampling"):
        engine.load_weights("b", policies["b"].export_weights())
    done: list[tuple[int, list[Completion]]] = []
    while not done:
        done += engine.step()
    assert done == [(0, expected)]


def test_weights_survive_sleep_and_wake_with_a_push(engine: Engine, policies: Mapping[str, LoRAPolicy]) -> None:
    learn(policies["a"])
    engine.load_weights("a", policies["a"].export_weights())
    before = generate(engine, [ask(name) for name in RANKS])
    engine.sleep()
    engine.wake()
    for name, policy in policies.items():
        engine.load_weights(name, policy.export_weights())
    assert generate(engine, [ask(name) for name in RANKS]) == before


def test_an_engine_starts_from_the_folders_it_is_given(policies: Mapping[str, LoRAPolicy], tmp_path: Path) -> None:
    models, adapters = served(policies)
    for name in ("a", "b"):
        learn(policies[name])
        policies[name].save(tmp_path / name)
        adapters[name] = tmp_path / name / "adapter"
    random = torch.get_rng_state()
    for engine in (
        TransformersEngine(models, adapters),
        VLLMEngine(models, adapters, dtype="float32", max_model_len=256, kv_cache_gb=0.03, enforce_eager=True),
    ):
        assert torch.equal(torch.get_rng_state(), random)
        for name in RANKS:
            [completions] = generate(engine, [ask(name)])
            assert gap(policies[name], ask(name), completions) < 1e-4
        engine.close()


def test_a_model_in_four_bits_is_sampled_as_it_is_trained() -> None:
    policies = build(quantize="4bit")
    for engine in (
        TransformersEngine(*served(policies)),
        VLLMEngine(*served(policies), dtype="float32", max_model_len=256, kv_cache_gb=0.03, enforce_eager=True),
    ):
        learn(policies["a"])
        engine.load_weights("a", policies["a"].export_weights())
        for request in (ask("a"), ask("base")):
            [completions] = generate(engine, [request])
            assert gap(policies[request.policy], request, completions) < 1e-4
        engine.close()


def test_the_scripted_engine_checks_adapters_too(starts: Mapping[str, LoRAPolicy]) -> None:
    engine = ScriptedEngine(*served(starts), script=lambda request, i: "")
    engine.load_weights("a", starts["a"].export_weights())
    with pytest.raises(EngineError, match="policy 'b'"):
        engine.load_weights("b", starts["a"].export_weights())
    assert engine.pushes == {"a": 1}
