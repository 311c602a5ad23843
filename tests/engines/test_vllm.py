"""What is particular to vLLM inside the trainer's process."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from atgrpo.engines.adapters import Adapter
from atgrpo.engines.base import EngineError, generate
from atgrpo.engines.common import Parameters
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.engines.vllm_adapters import VLLMAdapters
from tests.engines.helpers import LONG_PROMPT, PROMPT, ask, gap, ids


def engine_tensors(engine: VLLMEngine, policy: str) -> dict[str, torch.Tensor]:
    """Copies of the tensors that vLLM computes with."""

    def copies(model: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}

    [tensors] = engine._llms[policy].apply_model(copies)
    return tensors


@pytest.mark.parametrize("policy", ["tied", "untied"])
def test_adding_one_to_every_parameter_changes_every_engine_tensor_by_one(
    vllm: VLLMEngine, trainers: Mapping[str, LlamaForCausalLM], policy: str
) -> None:
    before = engine_tensors(vllm, policy)
    vllm.load_weights(policy, ((name, p.detach() + 1) for name, p in trainers[policy].named_parameters()))
    after = engine_tensors(vllm, policy)
    vocabulary = trainers[policy].config.vocab_size
    assert after.keys() == before.keys()
    for name in before:
        # vLLM pads the vocabulary with rows that no token reads.
        rows = vocabulary if "embed_tokens" in name or "lm_head" in name else None
        torch.testing.assert_close(after[name][:rows], before[name][:rows] + 1)


def test_a_tied_head_equals_the_embedding_after_a_push(
    vllm: VLLMEngine, trainers: Mapping[str, LlamaForCausalLM], perturb: Callable[[torch.nn.Module], None]
) -> None:
    perturb(trainers["tied"])
    vllm.load_weights("tied", trainers["tied"].named_parameters())
    embedding = trainers["tied"].get_input_embeddings().weight

    def head_and_embedding(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        # Through the head's own multiplication, which on CPU reads a packed copy of the weight.
        unit = torch.eye(model.config.hidden_size)
        return model.lm_head.quant_method.apply(model.lm_head, unit).T.clone(), model.model.embed_tokens.weight.clone()

    [(head, engine_embedding)] = vllm._llms["tied"].apply_model(head_and_embedding)
    rows = embedding.shape[0]
    torch.testing.assert_close(engine_embedding[:rows], embedding.detach())
    torch.testing.assert_close(head[:rows], embedding.detach())


def test_the_second_answer_to_a_long_prompt_reads_the_cache_until_new_weights_come(
    vllm: VLLMEngine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    request = ask(prompt=LONG_PROMPT, n=1, max_tokens=1)
    vllm.stats()
    generate(vllm, [request])
    assert vllm.stats() == {"prefix_cache_hit_rate": 0.0}
    generate(vllm, [request])
    assert vllm.stats() == {"prefix_cache_hit_rate": 288 / 300}
    vllm.load_weights("tied", trainers["tied"].named_parameters())
    generate(vllm, [request])
    assert vllm.stats() == {"prefix_cache_hit_rate": 0.0}
    assert vllm.stats() == {"prefix_cache_hit_rate": 0.0}


def test_one_finished_tree_goes_on_while_a_long_completion_runs(vllm: VLLMEngine) -> None:
    vllm.submit(0, ask(n=8, max_tokens=200, seed=1))
    order, waiting = [], 1
    vllm.submit(1, ask("untied", n=1, max_tokens=3))
    while waiting <= 3:
        for ticket, _ in vllm.step():
            order.append(ticket)
            if ticket:
                waiting += 1
                vllm.submit(waiting, ask("untied", n=1, max_tokens=3, seed=waiting))
    assert order == [1, 2, 3]
    while len(order) < 5:
        order += [ticket for ticket, _ in vllm.step()]
    assert order == [1, 2, 3, 4, 0]


def test_other_engines_open_and_close_without_being_noticed(
    vllm: VLLMEngine, folders: Mapping[str, Path], trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    [before] = generate(vllm, [ask(prompt=LONG_PROMPT)])
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    expected = torch.rand(2), random.random(), np.random.rand()
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    threads, setter = torch.get_num_threads(), torch.set_num_threads
    other = VLLMEngine({"x": folders["tied"]}, max_model_len=256, kv_cache_gb=0.03, enforce_eager=True)
    assert "bfloat16" in other.name and "float32" in vllm.name
    [[answer]] = generate(other, [ask("x", n=1)])
    other.close()
    assert answer.token_ids
    assert torch.equal(torch.rand(2), expected[0]) and (random.random(), np.random.rand()) == expected[1:]
    assert (torch.get_num_threads(), torch.set_num_threads) == (threads, setter)
    assert torch.is_grad_enabled()
    [after] = generate(vllm, [ask(prompt=LONG_PROMPT)])
    assert after == before
    vllm.load_weights("tied", trainers["tied"].named_parameters())
    request = ask(prompt=PROMPT, seed=11)
    assert gap(trainers["tied"], request, generate(vllm, [request])[0]) < 1e-4


def test_a_prompt_that_leaves_little_room_gets_what_is_left(vllm: VLLMEngine) -> None:
    [[completion]] = generate(vllm, [ask(prompt=(5,) * 1020, n=1, max_tokens=50, seed=2)])
    assert len(completion.token_ids) <= 4
    assert completion.finish_reason == "length" or completion.token_ids[-1] == 3


def test_a_failed_push_leaves_an_engine_that_takes_the_next(
    vllm: VLLMEngine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    [before] = generate(vllm, [ask()])
    with pytest.raises(EngineError):
        vllm.load_weights("tied", list(trainers["tied"].named_parameters())[:3])
    vllm.load_weights("tied", trainers["tied"].named_parameters())
    [after] = generate(vllm, [ask()])
    assert ids(after) == ids(before)


# ---- as on a GPU: vLLM itself is a stand-in, as nothing sleeps on CPU -----------------------------------------------


def on_a_gpu(hosts: Mapping[str, str], adapters: Sequence[str] = ()) -> VLLMEngine:
    """An engine that serves a model with one weight, ``w``, for each of the hosts."""
    engine = object.__new__(VLLMEngine)
    read = {policy: Adapter(Path(), '{"r": 4}', Parameters({}, tied=False)) for policy in adapters}
    engine._hosts, engine._adapters = dict(hosts), VLLMAdapters(read, hosts)
    engine._llms = {host: MagicMock() for host in hosts.values()}
    for llm in engine._llms.values():
        llm.vllm_config.device_config.device_type = "cuda"
        llm.model_config.max_model_len = 64
        llm.collective_rpc.side_effect = lambda _, args: list(*args)
    engine._parameters = {policy: Parameters({"w": (1,)}, tied=False) for policy in hosts if policy not in read}
    engine._tensor_parallel = 1
    engine._prepare(list(hosts))
    return engine


def test_a_policy_that_woke_is_asked_for_nothing_before_its_weights_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("vllm", "vllm.sampling_params"):
        monkeypatch.setitem(sys.modules, module, MagicMock())
    engine = on_a_gpu({"a": "a", "b": "b", "adapted": "adapted"}, adapters=["adapted"])
    engine.sleep()
    engine.wake()
    for policy in ("a", "b", "adapted"):
        with pytest.raises(EngineError, match=f"policy '{policy}' was asked for completions before its weights"):
            engine.submit(0, ask(policy))
    engine.load_weights("a", [("w", torch.zeros(1))])
    engine.submit(0, ask("a", n=3))
    with pytest.raises(EngineError, match="policy 'b' was asked"):
        engine.submit(1, ask("b"))
    assert {policy: llm.add_request.call_count for policy, llm in engine._llms.items()} == {
        "a": 3,
        "b": 0,
        "adapted": 0,
    }


@pytest.mark.parametrize(
    ("hosts", "adapters", "level"),
    [
        ({"a": "a"}, [], 2),
        ({"a": "a", "b": "b"}, [], 1),
        ({"a": "a"}, ["a"], 1),
        ({"a": "a", "b": "a"}, ["a", "b"], 1),
        ({"a": "a", "b": "b"}, ["b"], 1),
    ],
)
def test_only_a_model_that_is_alone_and_pushed_again_discards_its_weights(
    hosts: dict[str, str], adapters: list[str], level: int
) -> None:
    engine = on_a_gpu(hosts, adapters)
    engine.sleep()
    for llm in engine._llms.values():
        llm.sleep.assert_called_once_with(level=level)
