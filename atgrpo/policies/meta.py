"""Models that start without memory, so that no process ever holds all weights of one larger than its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def empty_model(config: Any, **settings: Any) -> Any:
    """A model of transformers whose parameters have no memory yet; its buffers are computed as usual."""
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(config, **settings)
    model.tie_weights()  # losing its memory makes every parameter an object of its own
    return model


def is_empty(model: nn.Module) -> bool:
    """Some parameter has no memory yet."""
    return any(parameter.is_meta for parameter in model.parameters())


def fill(model: Any, folder: Path, device: torch.device | str) -> None:
    """Gives the parameters memory on ``device`` and reads this rank's part of each from the folder's files.

    Raises:
        ValueError: a parameter is in none of the files under its own name.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.to_empty(device=device)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        model.tie_weights()  # getting memory parted them; sharded ones stay the same object
    with _weights(folder) as weights:
        for name, parameter in model.named_parameters():
            if name not in weights:
                raise ValueError(f"meta: got a model whose {name} is in no file of {folder}, expected every parameter")
            _copy_part(parameter.detach(), weights[name])


def _copy_part(parameter: Tensor, weight: Any) -> None:
    if not isinstance(parameter, DTensor):
        parameter.copy_(weight[:])
        return
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    if parameter.to_local().numel():
        rows = slice(offset[0], offset[0] + shape[0])
        parameter.to_local().copy_(weight[rows])


@contextmanager
def _weights(folder: Path) -> Iterator[dict[str, Any]]:
    """Name -> what reads rows of the tensor when it is sliced."""
    from safetensors import safe_open

    with ExitStack() as files:
        found: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file = files.enter_context(safe_open(path, framework="pt"))
            found |= {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        yield found
