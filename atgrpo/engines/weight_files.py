"""How weights get to engines in other processes: by files in shared memory, or by the place of a GPU's memory.

vLLM has a weight-transfer API of its own. Its sending half has to be imported into the trainer, which is to stay free
of vLLM; its receiving half loads tensors layer by layer, as ``vllm_worker`` does, for files and tied heads on CPU too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from atgrpo.engines.base import EngineError
from atgrpo.scratch import ScratchFolder, places, remove_leftovers

FILE = "weights.safetensors"


class WeightFiles:
    """Writes files, each in a folder of its own, and takes them away again.

    What killed processes left behind is removed at start.
    """

    def __init__(self) -> None:
        self._folders: dict[str, ScratchFolder] = {}
        remove_leftovers()

    def write(self, weights: Iterable[tuple[str, Tensor]]) -> str:
        """Writes all of ``weights`` and returns the file's path.

        Raises:
            EngineError: there is no room for them.
        """
        from safetensors.torch import save_file

        tensors: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, tensor in weights:
            kept = tensor.detach().cpu().contiguous()
            tensors[name] = kept.clone() if kept.data_ptr() in seen else kept  # a tied weight must not be shared
            seen.add(kept.data_ptr())
        size = sum(tensor.nbytes for tensor in tensors.values())
        place = _place(size)
        try:
            folder = ScratchFolder("weights", place)
        except OSError as error:
            raise EngineError(f"weights of {size / 2**20:.0f} MiB could not be written to {place}: {error}") from error
        file = folder.path / FILE
        self._folders[str(file)] = folder
        try:
            save_file(tensors, file.with_suffix(".part"))
            file.with_suffix(".part").rename(file)
        except Exception as error:  # safetensors wraps what the system says in a class of its own
            self.remove(str(file))
            raise EngineError(f"weights of {size / 2**20:.0f} MiB could not be written to {place}: {error}") from error
        return str(file)

    def remove(self, path: str) -> None:
        """Takes a file away; a process that has it open can still read it."""
        self._folders.pop(path).remove()

    def close(self) -> None:
        """Takes all files away."""
        for path in list(self._folders):
            self.remove(path)


def _place(size: int) -> Path:
    candidates = places()
    # Headers and whole pages take a little more than the tensors.
    return next((place for place in candidates if shutil.disk_usage(place).free > 1.05 * size + 2**20), candidates[-1])


def handle(tensor: Tensor) -> tuple[Callable[..., Tensor], Any]:
    """What rebuilds the tensor in another process: by its place in the GPU's memory, on CPU by its content."""
    if not tensor.is_cuda:
        content = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return from_bytes, (content, tensor.dtype, tuple(tensor.shape))
    rebuild, arguments = reduce_tensor(tensor.contiguous())
    return rebuild, (*arguments[:6], 0, *arguments[7:])  # the child sees this GPU as its first


def from_bytes(content: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor with this content."""
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)


def walk(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Takes part in the gathering of weights that this rank has no use for."""
    for _ in weights:
        pass
    return ""
