from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from atgrpo.functional.losses import aggregate
from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.collate import Batching, pack
from atgrpo.types import Minibatch
from tests.policies.helpers import PROMPT, RESPONSES, assert_same, gradients, learn, of_branch, packed, plain, reference
from tests.rollout.helpers import make_turn


@pytest.fixture
def changed_folder(tmp_path: Path) -> Callable[..., str]:
    """The tiny model with some settings of its configuration changed."""

    def copy(**settings: Any) -> str:
        folder = shutil.copytree(model_folder("tiny"), tmp_path / "model")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | settings))
        return str(folder)

    return copy


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_packed_plain_and_transformers_own_logprobs_agree(attention: Any, temperature: float) -> None:
    policy = CausalLMPolicy("tiny", attention=attention)
    batch = packed()
    together = policy(batch, temperature).logprobs
    for k, (ids, alone) in enumerate(zip(RESPONSES, plain(), strict=True), start=1):
        expected = reference(policy.model, PROMPT, ids, temperature)
        torch.testing.assert_close(of_branch(together, batch, k), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(
            of_branch(policy(alone, temperature).logprobs, alone, 1), expected, atol=1e-5, rtol=0
        )
    assert together[~batch.loss_mask].tolist() == [0.0] * len(PROMPT)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_and_plain_gradients_agree(attention: Any) -> None:
    policy = CausalLMPolicy("tiny", attention=attention)
    assert_same(gradients(policy, [packed()]), gradients(policy, plain()))


def test_the_gradient_is_that_of_transformers_own_loss_with_labels(tiny: CausalLMPolicy) -> None:
    [ids] = RESPONSES[:1]
    labels = torch.tensor([[-100] * len(PROMPT) + list(ids)])
    tiny.zero_grad()
    loss = tiny.model(input_ids=torch.tensor([[*PROMPT, *ids]]), labels=labels).loss
    loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in tiny.named_parameters()}
    batch = pack("p", [[make_turn(ids, PROMPT, advantage=1.0)]], Batching(), float(len(ids)), last=True)
    assert_same(gradients(tiny, [batch]), expected)
    assert float(tiny(batch, 1.0).logprobs.sum()) / len(ids) == pytest.approx(-float(loss), abs=1e-5)


def test_a_branch_neither_sees_nor_is_seen_by_its_siblings(tiny: CausalLMPolicy) -> None:
    batch = packed()
    other = replace(batch, token_ids=torch.where(batch.branch_ids == 2, 77, batch.token_ids))
    before, after = tiny(batch, 1.0).logprobs, tiny(other, 1.0).logprobs
    for branch in (1, 3):
        torch.testing.assert_close(of_branch(after, batch, branch), of_branch(before, batch, branch), atol=0, rtol=0)
    assert not torch.allclose(of_branch(after, batch, 2), of_branch(before, batch, 2))


class NextIsOneMore(nn.Module):
    """P(next = previous + 1) = 1, whatever came before."""

    def base_model(self, input_ids: Tensor, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=nn.functional.one_hot(input_ids, 100).float())

    def get_output_embeddings(self) -> Callable[[Tensor], Tensor]:
        return lambda hidden: 1000 * hidden.roll(1, -1)


def test_log_probs_belong_to_the_token_that_comes_next_and_not_to_a_neighbour() -> None:
    policy = CausalLMPolicy("tiny")
    policy.packed.model = NextIsOneMore()
    counting = [
        [make_turn((6, 7, 8), (4, 5)), make_turn((6,), (4, 5)), make_turn((6, 7), (4, 5))],
        [make_turn((1,), (0,))],
    ]
    batch = packed(*counting)
    assert policy(batch, 1.0).logprobs.tolist() == torch.zeros(batch.token_ids.shape).tolist()
    off = packed([make_turn((6, 7, 9), (4, 5))])
    assert policy(off, 1.0).logprobs[0].tolist() == [0, 0, 0, 0, -1000.0]


def pad(batch: Minibatch, left: int, right: int) -> Minibatch:
    fills = {"branch_ids": -1}
    names = (
        "token_ids",
        "position_ids",
        "branch_ids",
        "loss_mask",
        "sampler_logprobs",
        "advantages",
        "weights",
        "source",
    )
    padded = {n: nn.functional.pad(getattr(batch, n), (left, right), value=fills.get(n, 0)) for n in names}
    return replace(batch, **padded | {"source": padded["source"] + left})


@pytest.mark.parametrize(("left", "right"), [(3, 0), (0, 3), (2, 5)])
def test_padding_changes_nothing(tiny: CausalLMPolicy, left: int, right: int) -> None:
    batch = packed()
    wide = pad(batch, left, right)
    before, after = tiny(batch, 1.0), tiny(wide, 1.0)
    end = left + batch.token_ids.shape[1]
    torch.testing.assert_close(after.logprobs[:, left:end], before.logprobs, atol=1e-5, rtol=0)
    torch.testing.assert_close(after.entropy[:, left:end], before.entropy, atol=1e-5, rtol=0)
    assert_same(gradients(tiny, [wide]), gradients(tiny, [batch]))


def test_a_minibatch_without_trained_tokens_gives_zero_gradients_and_no_nan(tiny: CausalLMPolicy) -> None:
    tiny.zero_grad()
    empty = pack("p", [], Batching(), 0.0, last=True)
    scores = tiny(empty, 1.0)
    loss = aggregate(-scores.logprobs, empty.weights, empty.loss_mask, empty.denominator)
    loss.backward()
    assert float(loss) == 0.0
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in tiny.parameters())


@pytest.mark.parametrize("chunk", [1, 4])
def test_chunks_of_logits_change_nothing(tiny: CausalLMPolicy, chunk: int) -> None:
    chunked = CausalLMPolicy("tiny", logits_chunk=chunk, gradient_checkpointing=True)
    assert_same(gradients(chunked, [packed()]), gradients(tiny, [packed()]))


def test_entropy_is_that_of_the_distribution_and_has_a_gradient_only_when_asked(tiny: CausalLMPolicy) -> None:
    batch = packed()
    logits = tiny.model(input_ids=torch.tensor([[*PROMPT, *RESPONSES[0]]])).logits[0, len(PROMPT) - 1 : -1]
    expected = torch.distributions.Categorical(logits=logits / 0.5).entropy()
    scores = tiny(batch, 0.5)
    torch.testing.assert_close(of_branch(scores.entropy, batch, 1), expected, atol=1e-5, rtol=0)
    assert not scores.entropy.requires_grad
    assert tiny(batch, 0.5, entropy_grad=True).entropy.requires_grad


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_is_off_while_training(
    changed_folder: Callable[..., str], attention: Any, tiny: CausalLMPolicy
) -> None:
    policy = CausalLMPolicy(changed_folder(attention_dropout=0.5), attention=attention)
    assert policy.training and policy.model.training
    got, again = policy(packed(), 1.0).logprobs, policy(packed(), 1.0).logprobs
    assert got.tolist() == again.tolist()
    torch.testing.assert_close(got, tiny(packed(), 1.0).logprobs, atol=1e-5, rtol=0)


def test_logits_that_are_changed_after_the_head_are_refused(changed_folder: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match=r"got final_logit_softcapping in its configuration, expected plain logits"):
        CausalLMPolicy(changed_folder(final_logit_softcapping=30.0))


def test_weights_are_float32_whatever_was_saved(tiny: CausalLMPolicy, tmp_path: Path) -> None:
    AutoModelForCausalLM.from_pretrained(tiny.folder, dtype=torch.bfloat16).save_pretrained(tmp_path)
    policy = CausalLMPolicy(str(tmp_path))
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}


def test_a_frozen_policy_has_nothing_to_train() -> None:
    policy = CausalLMPolicy("tiny", trainable=False)
    assert not any(parameter.requires_grad for parameter in policy.parameters())
    assert not policy.trainable


@pytest.mark.parametrize("name", ["tiny", "tiny-untied"])
def test_exported_weights_are_the_checkpoints_own_names_once_each(name: str) -> None:
    policy = CausalLMPolicy(name)
    exported = dict(policy.export_weights())
    assert len(list(policy.export_weights())) == len(exported)
    state = AutoModelForCausalLM.from_pretrained(policy.folder).state_dict()
    assert set(state) - set(exported) == ({"lm_head.weight"} if name == "tiny" else set())
    assert all(torch.equal(weight, state[key]) for key, weight in exported.items())
    assert not any(weight.requires_grad for weight in exported.values())


def test_a_saved_policy_is_loaded_again_with_its_tokenizer(tmp_path: Path) -> None:
    policy = CausalLMPolicy("tiny")
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)
    policy.save(tmp_path / "out")
    again = CausalLMPolicy(str(tmp_path / "out"))
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), again.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_the_reference_stays_at_the_starting_weights_and_is_shared_with_peers() -> None:
    a = CausalLMPolicy("tiny", name="a", reference=True)
    b = CausalLMPolicy("tiny", name="b", peers={"a": a}, reference=True)
    start = a(packed(), 0.7).logprobs.detach()
    learn(a)
    assert not torch.allclose(a(packed(), 0.7).logprobs, start, atol=1e-3)
    assert a.reference_logprobs(packed(), 0.7).tolist() == start.tolist()
    assert not a.reference_logprobs(packed(), 0.7).requires_grad
    assert b.reference is a.reference
    assert CausalLMPolicy("tiny-untied", peers={"a": a}, reference=True).reference is not a.reference
    assert [name for name, _ in a.trained_parameters()] == [
        name for name, _ in a.packed.named_parameters(prefix="packed")
    ]
    assert not any("reference" in name for name, _ in a.export_weights())


def test_without_a_reference_there_is_nothing_to_compare_with(tiny: CausalLMPolicy) -> None:
    with pytest.raises(ValueError, match=r"reference: got False .* expected True"):
        tiny.reference_logprobs(packed(), 1.0)


def test_trained_parameters_are_named_as_in_the_policy_and_none_of_a_frozen_one(tiny: CausalLMPolicy) -> None:
    assert dict(tiny.trained_parameters()) == dict(tiny.named_parameters())
    assert list(CausalLMPolicy("tiny", trainable=False).trained_parameters()) == []
