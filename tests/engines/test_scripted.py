from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from atgrpo.engines.base import Engine, EngineError, generate
from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.types import Completion
from tests.engines.helpers import ask


@pytest.fixture
def scripted(folders: Mapping[str, Path]) -> ScriptedEngine:
    return ScriptedEngine(folders, script=lambda request, i: f"{request.policy} {i}", logprob=-0.5)


def test_answers_are_the_scripts_with_an_end_token(scripted: ScriptedEngine, folders: Mapping[str, Path]) -> None:
    assert isinstance(scripted, Engine)
    tokenizer = AutoTokenizer.from_pretrained(folders["tied"])
    requests = [ask("untied", n=2), ask("tied", n=1)]
    [[first, second], [third]] = generate(scripted, requests)
    assert [first.text, second.text, third.text] == ["untied 0", "untied 1", "tied 0"]
    expected = (*tokenizer.encode("tied 0"), tokenizer.eos_token_id)
    assert third == Completion(expected, (-0.5,) * len(expected), "tied 0", "stop")
    assert scripted.requests == requests


def test_an_answer_too_long_is_cut(scripted: ScriptedEngine) -> None:
    [[cut]] = generate(scripted, [ask("tied", n=1, max_tokens=4)])
    assert (cut.text, cut.finish_reason, len(cut.token_ids)) == ("tied", "length", 4)
    [[whole]] = generate(scripted, [ask("tied", n=1, max_tokens=7)])
    assert (whole.finish_reason, whole.token_ids[-1]) == ("stop", 3)


def test_prompts_can_be_read(scripted: ScriptedEngine, folders: Mapping[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folders["tied"])
    prompt = tuple(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "1+1?"}], add_generation_prompt=True, return_dict=False
        )
    )
    assert scripted.prompt_text(ask("tied", prompt)) == "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"


def test_pushes_are_counted_and_checked(scripted: ScriptedEngine, trainers: Mapping[str, LlamaForCausalLM]) -> None:
    scripted.load_weights("tied", trainers["tied"].named_parameters())
    with pytest.raises(EngineError, match="unknown"):
        scripted.load_weights("tied", [*trainers["tied"].named_parameters(), ("extra", torch.ones(1))])
    assert scripted.pushes == {"tied": 1}
