from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.policies.lora import LoRAPolicy
from tests.policies.helpers import PROMPT, RESPONSES, assert_same, backward, gradients, learn, of_branch, packed, plain


def pair(**settings: Any) -> tuple[LoRAPolicy, LoRAPolicy]:
    """Two policies on one base."""
    a = LoRAPolicy("tiny", name="a", **settings)
    return a, LoRAPolicy("tiny", name="b", peers={"a": a}, **settings)


def adapter(policy: LoRAPolicy) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in policy.export_weights()}


def base(policy: LoRAPolicy) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in policy.packed.named_parameters() if ".lora_" not in n}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_an_untrained_policy_is_the_base_and_starts_from_the_seed_and_its_name_alone(tiny: CausalLMPolicy) -> None:
    a, b = pair()
    assert a(packed(), 0.7).logprobs.tolist() == tiny(packed(), 0.7).logprobs.tolist()
    torch.manual_seed(1)  # torch's own state must not count
    alone = LoRAPolicy("tiny", name="b")
    assert same(adapter(alone), adapter(b))
    assert not same(adapter(a), adapter(b))
    assert not same(adapter(LoRAPolicy("tiny", name="b", seed=1)), adapter(b))


def test_building_a_policy_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    pair()
    assert torch.equal(torch.get_rng_state(), before)


def test_policies_with_equal_settings_share_a_base_and_others_do_not() -> None:
    a, b = pair()
    peers = {"a": a, "b": b, "full": CausalLMPolicy("tiny")}
    assert a.packed is b.packed
    assert LoRAPolicy("tiny", name="c", r=4, peers=peers).packed is a.packed
    for other in ({"base_dtype": "bfloat16"}, {"attention": "eager"}, {"model": "tiny-untied"}):
        assert LoRAPolicy(**{"model": "tiny", "name": "c2", "peers": peers, **other}).packed is not a.packed


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_packed_plain_and_pefts_own_logprobs_agree(attention: Any, temperature: float, tmp_path: Path) -> None:
    policy, _ = pair(attention=attention)
    learn(policy)
    policy.save(tmp_path)
    own = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(policy.folder), tmp_path / "adapter")
    together = policy(packed(), temperature).logprobs
    for k, (ids, alone) in enumerate(zip(RESPONSES, plain(), strict=True), start=1):
        logits = own(input_ids=torch.tensor([[*PROMPT, *ids]])).logits[0, len(PROMPT) - 1 : -1]
        expected = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        torch.testing.assert_close(of_branch(together, packed(), k), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            of_branch(policy(alone, temperature).logprobs, alone, 1), expected, atol=1e-5, rtol=0
        )


def test_packed_and_plain_gradients_agree_also_when_layers_are_computed_again() -> None:
    policy, _ = pair()
    learn(policy)
    expected = gradients(policy, plain())
    assert_same(gradients(policy, [packed()]), expected)
    saving, _ = pair(gradient_checkpointing=True, logits_chunk=4)
    learn(saving)
    assert_same(gradients(saving, [packed()]), expected)


def test_a_layer_is_computed_again_with_the_adapter_of_its_forward_pass() -> None:
    a, b = pair(gradient_checkpointing=True)
    learn(a)
    learn(b)
    expected = gradients(a, [packed()])
    a.zero_grad()
    logprobs = a(packed(), 1.0).logprobs
    b(packed(), 1.0)
    a.reference_logprobs(packed(), 1.0)
    batch = packed()
    (-(logprobs * batch.advantages * batch.weights).sum() / batch.denominator).backward()
    assert_same({name: p.grad for name, p in a.trained_parameters()}, expected)  # type: ignore[misc]
    assert all(p.grad is None for _, p in b.trained_parameters())


def test_an_update_of_one_policy_leaves_the_other_and_the_base_bit_for_bit_as_they_were() -> None:
    a, b = pair()
    learn(b)
    before = adapter(a), adapter(b), base(a), b(packed(), 1.0).logprobs.tolist()
    learn(a)
    assert all(not torch.equal(now, before[0][name]) for name, now in adapter(a).items())
    assert same(adapter(b), before[1])
    assert same(base(a), before[2])
    assert b(packed(), 1.0).logprobs.tolist() == before[3]


def test_the_clipped_norm_of_one_policy_ignores_the_other() -> None:
    a, b = pair()
    learn(a)
    learn(b)

    def norm() -> float:
        return float(torch.nn.utils.clip_grad_norm_([p for _, p in a.trained_parameters()], 1e-3))

    backward(a, packed())
    alone = norm()
    a.zero_grad()
    backward(a, packed())
    backward(b, packed())
    of_b = [p.grad.clone() for _, p in b.trained_parameters()]  # type: ignore[union-attr]
    assert alone == norm() > 1e-3
    assert all(torch.equal(p.grad, g) for (_, p), g in zip(b.trained_parameters(), of_b, strict=True))  # type: ignore[arg-type]


def test_adapters_keep_their_gradient_flags_whichever_is_in_use() -> None:
    a, b = pair()
    frozen = LoRAPolicy("tiny", name="frozen", peers={"a": a}, trainable=False)
    for policy in (a, b, frozen):
        policy(packed(), 1.0)
        policy.reference_logprobs(packed(), 1.0)
        own = {id(p) for trained in (a, b) for _, p in trained.trained_parameters()}
        assert {id(p) for p in a.packed.parameters() if p.requires_grad} == own
    assert len(own) == 2 * len(adapter(a))
    assert list(frozen.trained_parameters()) == []
    assert len(list(frozen.export_weights())) == len(adapter(a))


def test_trained_parameters_are_found_under_their_names_in_the_policy() -> None:
    _, b = pair()
    inside = dict(b.named_parameters())
    assert all(inside[name] is parameter for name, parameter in b.trained_parameters())


def test_adapters_are_float32_on_a_base_in_bfloat16_and_learn() -> None:
    policy = LoRAPolicy("tiny", name="a", base_dtype="bfloat16")
    before = adapter(policy), base(policy)
    assert {tensor.dtype for tensor in before[1].values()} == {torch.bfloat16}
    learn(policy)
    assert {p.dtype for _, p in policy.trained_parameters()} == {torch.float32}
    assert all(not torch.equal(now, before[0][name]) for name, now in adapter(policy).items())
    assert same(base(policy), before[1])


def test_the_reference_is_the_base_before_and_after_training(tiny: CausalLMPolicy) -> None:
    a, b = pair()
    expected = tiny(packed(), 0.7).logprobs
    for _ in range(2):
        torch.testing.assert_close(a.reference_logprobs(packed(), 0.7), expected, atol=1e-6, rtol=0)
        assert not a.reference_logprobs(packed(), 0.7).requires_grad
        learn(a)
        learn(b)
    assert not torch.allclose(a(packed(), 0.7).logprobs, expected, atol=1e-3)


def test_exported_weights_are_what_peft_writes(tmp_path: Path) -> None:
    a, _ = pair(r=4, target_modules=["q_proj", "down_proj"])
    learn(a)
    a.save(tmp_path)
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(a.folder), tmp_path / "adapter")
    peft.save_pretrained(tmp_path / "again")
    assert same(load_file(tmp_path / "again" / "adapter_model.safetensors"), adapter(a))
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in adapter(a)
    assert {name.split(".")[-3] for name in adapter(a)} == {"q_proj", "down_proj"}


@pytest.mark.parametrize("name", ["tiny", "tiny-untied"])
def test_saving_merges_into_a_copy_that_equals_the_adapter_applied(name: str, tmp_path: Path) -> None:
    policy = LoRAPolicy(name, name="a")
    learn(policy)
    before, random = base(policy), torch.get_rng_state()
    policy.save(tmp_path)
    assert same(base(policy), before)
    assert torch.equal(torch.get_rng_state(), random)
    merged = CausalLMPolicy(str(tmp_path))
    torch.testing.assert_close(
        merged(packed(), 1.0).logprobs, policy(packed(), 1.0).logprobs.detach(), atol=1e-5, rtol=0
    )
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template
    assert not any("lora" in key for key in load_file(tmp_path / "model.safetensors"))


def test_the_adapter_an_engine_starts_from_does_nothing_yet_and_goes_with_the_policy() -> None:
    policy = LoRAPolicy("tiny", name="a", r=4, alpha=12)
    folder = policy.adapter
    weights = load_file(folder / "adapter_model.safetensors")
    assert same(weights, adapter(policy))
    assert not any(tensor.any() for key, tensor in weights.items() if "lora_B" in key)
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (4, 12, "LORA")
    del policy
    assert not folder.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r": 0}, "r: got 0, expected 1 or more"),
        ({"target_modules": ["q_proj", "lm_head"]}, "target_modules: got lm_head, expected all-linear or some of down"),
        ({"target_modules": []}, "target_modules: got none"),
        ({"name": "a"}, "name: got 'a' twice on one base"),
    ],
)
def test_settings_out_of_range_are_one_clear_line(settings: dict[str, Any], message: str) -> None:
    a, _ = pair()
    with pytest.raises(ValueError, match=message) as caught:
        LoRAPolicy("tiny", **{"name": "new", "peers": {"a": a}, **settings})
    assert "\n" not in str(caught.value)
