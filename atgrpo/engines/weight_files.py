"""How weights get to engines in other processes: by files in shared memory, or by the place of a GPU's memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from atgrpo.engines.base import EngineError
from atgrpo.engines.common import SHARED_MEMORY

PREFIX = "atgrpo-weights-"
FILE = "weights.safetensors"


class WeightFiles:
    """Writes files, each in a folder of its own, and takes them away again.

    A folder is locked while its process lives. What killed processes left behind is therefore known, in whatever
    container they ran, and is removed here at start.
    """

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}
        remove_leftovers()

    def write(self, weights: Iterable[tuple[str, Tensor]]) -> str:
        """Writes all of ``weights`` and returns the file's path.

        Raises:
            EngineError: there is no room for them.
        """
        from safetensors.torch import save_file

        tensors: dict[str, Tensor] = {}
        places: set[int] = set()
        for name, tensor in weights:
            kept = tensor.detach().cpu().contiguous()
            tensors[name] = kept.clone() if kept.data_ptr() in places else kept  # a tied weight must not be shared
            places.add(kept.data_ptr())
        size = sum(tensor.nbytes for tensor in tensors.values())
        place = _place(size)
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
        except OSError as error:
            raise EngineError(f"weights of {size / 2**20:.0f} MiB could not be written to {place}: {error}") from error
        file = folder / FILE
        self._locks[str(file)] = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self._locks[str(file)], fcntl.LOCK_EX)
            save_file(tensors, file.with_suffix(".part"))
            file.with_suffix(".part").rename(file)
        except Exception as error:  # safetensors wraps what the system says in a class of its own
            self.remove(str(file))
            raise EngineError(f"weights of {size / 2**20:.0f} MiB could not be written to {folder}: {error}") from error
        return str(file)

    def remove(self, path: str) -> None:
        """Takes a file away; a process that has it open can still read it."""
        shutil.rmtree(Path(path).parent, ignore_errors=True)
        os.close(self._locks.pop(path))

    def close(self) -> None:
        """Takes all files away."""
        for path in list(self._locks):
            self.remove(path)


def remove_leftovers() -> None:
    """Removes the folders whose process is dead."""
    for folder in (folder for place in _places() for folder in place.glob(f"{PREFIX}*")):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except OSError:  # another user's, or just taken away
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner may be about to lock an empty one.
            if any(folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # its owner lives
        finally:
            os.close(lock)


def _places() -> list[Path]:
    return [place for place in (SHARED_MEMORY, Path(tempfile.gettempdir())) if place.is_dir()]


def _place(size: int) -> Path:
    places = _places()
    # Headers and whole pages take a little more than the tensors.
    return next((place for place in places if shutil.disk_usage(place).free > 1.05 * size + 2**20), places[-1])


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
