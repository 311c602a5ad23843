from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from atgrpo.engines.auto import start_engine
from atgrpo.engines.base import generate
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.engines.vllm import VLLMEngine
from tests.engines.helpers import ask

VLLM = partial(VLLMEngine, max_model_len=256, kv_cache_gb=0.03)
FALLBACK = partial(TransformersEngine, dtype="bfloat16")


def test_vllm_is_taken_where_it_can_be_imported(folders: Mapping[str, Path], vllm_engine: VLLMEngine) -> None:
    engine = start_engine({"x": folders["tied"]}, use="auto", vllm=VLLM, transformers=FALLBACK)
    assert isinstance(engine, VLLMEngine)
    assert engine.name.startswith("vllm 0.")
    engine.close()


def test_without_vllm_the_fallback_gets_its_own_settings_and_says_why(
    folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    engine = start_engine({"x": folders["tied"]}, use="auto", vllm=VLLM, transformers=FALLBACK)
    assert isinstance(engine, TransformersEngine)
    assert engine.name.startswith("transformers (bfloat16, ")
    assert "no vLLM: ModuleNotFoundError" in engine.name
    [[completion]] = generate(engine, [ask("x", n=1)])
    assert completion.token_ids


def test_an_engine_that_is_asked_for_is_taken(folders: Mapping[str, Path]) -> None:
    engine = start_engine({"x": folders["tied"]}, use="transformers", vllm=VLLM, transformers=FALLBACK)
    assert isinstance(engine, TransformersEngine)
    assert "no vLLM" not in engine.name
