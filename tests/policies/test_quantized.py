from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.policies.lora import LoRAPolicy
from atgrpo.policies.packed import PackedLM
from atgrpo.policies.quantized import dequantized_folder
from atgrpo.policies.sources import model_folder
from tests.policies.helpers import assert_same, backward, gradients, learn, packed


def test_the_unpacked_weights_are_written_once_for_each_folder_and_what_it_holds(tmp_path: Path) -> None:
    source = shutil.copytree(model_folder("tiny"), tmp_path / "model")
    folder = dequantized_folder(source, "float32", cache=tmp_path / "cache")
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert dequantized_folder(source, "float32", cache=tmp_path / "cache") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    assert dequantized_folder(source, "bfloat16", cache=tmp_path / "cache") != folder
    (source / "config.json").write_text((source / "config.json").read_text() + "\n")
    assert dequantized_folder(source, "float32", cache=tmp_path / "cache") != folder


def test_linear_layers_are_left_with_sixteen_levels_and_the_rest_as_it_was() -> None:
    source, folder = model_folder("tiny"), LoRAPolicy("tiny", name="a", quantize="4bit").folder
    before, after = (dict(AutoModelForCausalLM.from_pretrained(f).named_parameters()) for f in (source, folder))
    for name, weight in after.items():
        if "_proj" in name:
            blocks = weight.detach().reshape(-1, 64)
            assert max(len(block.unique()) for block in blocks) <= 16
            assert not torch.equal(weight, before[name])
        else:
            assert torch.equal(weight, before[name])


@pytest.mark.parametrize(("dtype", "gap"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_the_trainer_computes_what_the_folder_given_to_engines_does(dtype: Any, gap: float) -> None:
    policy = LoRAPolicy("tiny", name="a", quantize="4bit", base_dtype=dtype)
    plain = PackedLM(policy.folder, attention="sdpa", gradient_checkpointing=False, dtype=dtype)
    expected = plain(packed(), 1.0, 1024).logprobs
    torch.testing.assert_close(policy(packed(), 1.0).logprobs, expected, atol=gap, rtol=0)
    with torch.no_grad():  # another kernel
        torch.testing.assert_close(policy(packed(), 1.0).logprobs, expected, atol=gap, rtol=0)


def test_an_evaluation_changes_neither_log_probs_nor_gradients() -> None:
    policy = LoRAPolicy("tiny", name="a", quantize="4bit")
    learn(policy)
    logprobs, expected = policy(packed(), 1.0).logprobs.tolist(), gradients(policy, [packed()])
    policy.eval()
    with torch.no_grad():
        torch.testing.assert_close(policy(packed(), 1.0).logprobs, torch.tensor(logprobs), atol=1e-5, rtol=0)
    policy.train()
    assert policy(packed(), 1.0).logprobs.tolist() == logprobs
    assert_same(gradients(policy, [packed()]), expected)


def test_a_step_changes_the_adapter_and_nothing_else() -> None:
    policy = LoRAPolicy("tiny", name="a", quantize="4bit")
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    own = {name for name, _ in policy.trained_parameters()}
    backward(policy, packed())
    assert all(p.grad is None for name, p in policy.named_parameters() if name not in own)
    policy.zero_grad()
    learn(policy)
    changed = {name for name, p in policy.named_parameters() if not torch.equal(p, before[name])}
    assert changed == own
    assert {str(before[name].dtype) for name in set(before) - own} == {"torch.float32", "torch.uint8"}


def test_the_saved_model_is_the_unpacked_base_with_the_adapter_merged(tmp_path: Path) -> None:
    policy = LoRAPolicy("tiny", name="a", quantize="4bit")
    learn(policy)
    policy.save(tmp_path)
    merged = CausalLMPolicy(str(tmp_path))
    torch.testing.assert_close(
        merged(packed(), 1.0).logprobs, policy(packed(), 1.0).logprobs.detach(), atol=1e-5, rtol=0
    )
