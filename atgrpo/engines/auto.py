"""Picks the engine: vLLM where it can be imported, Hugging Face's own code elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from atgrpo.engines.base import Engine

StartEngine = Callable[..., Engine]
"""Of models and adapters."""


def start_engine(
    models: Mapping[str, str | Path],
    adapters: Mapping[str, str | Path] | None = None,
    *,
    use: Literal["auto", "vllm", "transformers"],
    vllm: StartEngine,
    transformers: StartEngine,
) -> Engine:
    """Starts the engine that ``use`` names; ``auto`` is vLLM where it can be imported, else the fallback.

    The name of a fallback ends with the reason why vLLM was not taken.
    """
    if use != "auto":
        return (vllm if use == "vllm" else transformers)(models, adapters)
    reason = _why_no_vllm()
    if reason is None:
        return vllm(models, adapters)
    engine = transformers(models, adapters)
    engine.name += f"; no vLLM: {reason}"  # type: ignore[misc]  # both engines have a plain attribute
    return engine


def _why_no_vllm() -> str | None:
    from atgrpo.engines.vllm_import import import_vllm

    try:
        import_vllm()
    except (ImportError, OSError, RuntimeError) as error:  # a build that does not fit torch fails in all three ways
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
    return None
