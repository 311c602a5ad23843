"""A 4-bit copy of a model for the trainer, and the same function in plain weights for the engine."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from atgrpo.policies.packed import Dtype, save_tokenizer
from atgrpo.policies.sources import cache_folder, cached


def nf4(dtype: Dtype) -> Any:
    """The ``quantization_config`` of a frozen base (QLoRA, arXiv:2305.14314), which computes in ``dtype``.

    The scales are not quantised again: then quantising ``dequantized_folder`` changes nothing.
    """
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=getattr(torch, dtype)
    )


def never_repack(model: nn.Module) -> None:
    """Keeps bitsandbytes from its CPU kernel for evaluation.

    Its first use changes the layout of the weights for good: other log-probs from then on, and wrong gradients.
    """
    from bitsandbytes.nn import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False


def dequantized_folder(source: Path, dtype: Dtype, *, cache: Path | None = None) -> Path:
    """The model of ``source`` with the weights that are left of it in 4 bits, written once.

    An engine that serves this folder and a base that is quantised from it compute the same function.
    """
    name = f"{source.name}-nf4-{dtype}-{_identity(source)}"
    return cached(name, partial(_build, source, dtype), cache or cache_folder())


def _identity(folder: Path) -> str:
    """Changes when the folder or what it holds does."""
    files = sorted(file for file in folder.iterdir() if file.suffix in (".json", ".safetensors"))
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((str(folder), seen)).encode()).hexdigest()[:12]


@torch.no_grad()
def _build(source: Path, dtype: Dtype, folder: Path) -> None:
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn import Linear4bit
    from transformers import AutoModelForCausalLM

    print(f"rounding {source.name} to 4 bits once into {folder.parent}", flush=True)
    load = partial(AutoModelForCausalLM.from_pretrained, source, dtype=getattr(torch, dtype))
    with torch.random.fork_rng():
        plain, small = load(), load(quantization_config=nf4(dtype))
    for name, module in small.named_modules():
        if isinstance(module, Linear4bit):
            weight: Any = module.weight
            plain.get_submodule(name).weight.copy_(dequantize_4bit(weight.data, weight.quant_state))
    plain.save_pretrained(folder)
    save_tokenizer(source, folder)
