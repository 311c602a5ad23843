from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.policies.meta import empty_model, fill, is_empty
from atgrpo.policies.sources import model_folder


@pytest.mark.parametrize("name", ["tiny", "tiny-untied"])
def test_a_model_without_memory_becomes_the_saved_one(name: str) -> None:
    folder = model_folder(name)
    model = empty_model(AutoConfig.from_pretrained(folder))
    assert is_empty(model)
    fill(model, folder, "cpu")
    saved = AutoModelForCausalLM.from_pretrained(folder)
    assert not is_empty(model)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == (name == "tiny")
    for (key, got), (_, expected) in zip(model.state_dict().items(), saved.state_dict().items(), strict=True):
        assert torch.equal(got, expected), key
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(ids).logits, saved(ids).logits)


def test_a_policy_materialises_once_and_keeps_what_is_frozen_frozen() -> None:
    policy = CausalLMPolicy("tiny", meta=True, trainable=False)
    policy.materialize("cpu")
    expected = CausalLMPolicy("tiny")
    for (name, got), (_, wanted) in zip(policy.named_parameters(), expected.named_parameters(), strict=True):
        assert torch.equal(got, wanted) and not got.requires_grad, name
    with torch.no_grad():
        next(policy.parameters()).zero_()
    policy.materialize("cpu")
    assert not next(policy.parameters()).any()


def test_a_parameter_that_no_file_has_is_named(tmp_path: Path) -> None:
    model = empty_model(AutoConfig.from_pretrained(model_folder("tiny")))
    with pytest.raises(ValueError, match=r"model\.embed_tokens\.weight is in no file of"):
        fill(model, tmp_path, "cpu")
