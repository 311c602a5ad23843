from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from atgrpo.engines.auto import auto_engine
from atgrpo.engines.base import generate
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.engines.vllm import VLLMEngine
from tests.engines.helpers import ask

VLLM = {"max_model_len": 256, "kv_cache_gb": 0.03, "enforce_eager": True}


def test_vllm_is_taken_where_it_can_be_imported(folders: Mapping[str, Path], vllm_engine: VLLMEngine) -> None:
    engine = auto_engine({"x": folders["tied"]}, vllm=VLLM, transformers={"batch_size": 4})
    assert isinstance(engine, VLLMEngine)
    assert engine.name.startswith("vllm 0.")
    engine.close()


def test_without_vllm_the_fallback_gets_its_own_settings_and_says_why(
    folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    engine = auto_engine({"x": folders["tied"]}, vllm=VLLM, transformers={"dtype": "bfloat16"})
    assert isinstance(engine, TransformersEngine)
    assert engine.name.startswith("transformers (bfloat16, ")
    assert "no vLLM: ModuleNotFoundError" in engine.name
    [[completion]] = generate(engine, [ask("x", n=1)])
    assert completion.token_ids
