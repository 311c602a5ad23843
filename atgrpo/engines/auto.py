"""Picks the engine: vLLM where it can be imported, Hugging Face's own code elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atgrpo.engines.base import Engine


def auto_engine(
    models: Mapping[str, str | Path],
    *,
    vllm: Mapping[str, Any] | None = None,
    transformers: Mapping[str, Any] | None = None,
) -> Engine:
    """Starts vLLM with the settings ``vllm``, or without it the fallback with the settings ``transformers``.

    The name of the fallback ends with the reason why vLLM was not taken.
    """
    reason = _why_no_vllm()
    if reason is None:
        from atgrpo.engines.vllm import VLLMEngine

        return VLLMEngine(models, **(vllm or {}))
    from atgrpo.engines.transformers import TransformersEngine

    engine = TransformersEngine(models, **(transformers or {}))
    engine.name += f"; no vLLM: {reason}"
    return engine


def _why_no_vllm() -> str | None:
    from atgrpo.engines.vllm import import_vllm

    try:
        import_vllm()
    except (ImportError, OSError, RuntimeError) as error:  # a build that does not fit torch fails in all three ways
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
    return None
