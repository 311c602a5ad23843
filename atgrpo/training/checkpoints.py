"""Reads a checkpoint of any number of processes in one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.strategies.model_parallel import _METADATA_FILENAME
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

LOCAL_STATES = "optimizers_of_rank_{}.pt"
SHARDED = "optimizer_"
UNREADABLE = (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError)
"""What torch says of a file that is damaged or cut."""


class CheckpointError(ValueError):
    """A checkpoint that does not fit what it is loaded into."""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint as one process writes it: a file as it is, a folder of several ranks put together."""
    if path.is_file():
        try:
            file: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except UNREADABLE as error:
            why = " ".join(str(error).split())[:200]
            raise CheckpointError(f"checkpoint {path} cannot be read ({why}), expected a whole one") from error
        return file
    parts: dict[str, Any] = {}
    _load_state_dict(parts, FileSystemReader(path), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    whole: dict[str, Any] = torch.load(path / _METADATA_FILENAME, map_location="cpu", weights_only=True)
    whole["state_dict"] = parts["state_dict"]
    optimizers = {
        int(n.removeprefix(SHARDED)): _by_position(s) for n, s in parts.items() if n.startswith(SHARDED) and s
    }
    optimizers |= local_states(path)
    whole["optimizer_states"] = [optimizers[i] for i in sorted(optimizers)]
    return whole


def saved_names(folder: Path) -> dict[str, Any]:
    """Names of the weights in a checkpoint of several ranks."""
    parts = FileSystemReader(folder).read_metadata().state_dict_metadata
    prefix = "state_dict."
    return {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}


def local_states(folder: Path) -> dict[int, dict[str, Any]]:
    """Number of an optimiser -> its state put together, of those whose ranks each saved their own part."""
    if not list(folder.glob(LOCAL_STATES.format("*"))):
        return {}
    from atgrpo.training.optimizers import merge_local_states  # imports bitsandbytes

    of_ranks = [torch.load(f, map_location="cpu", weights_only=True) for f in folder.glob(LOCAL_STATES.format("*"))]
    return {i: merge_local_states([state[i] for state in of_ranks]) for i in of_ranks[0]}


def _by_position(state: dict[str, Any]) -> dict[str, Any]:
    """An optimiser's state by the numbers of its parameters, as torch has it, instead of by their names."""
    names = [name for group in state["param_groups"] for name in group["params"]]
    number = {name: i for i, name in enumerate(names)}
    groups = [{**group, "params": [number[name] for name in group["params"]]} for group in state["param_groups"]]
    return {"state": {number[name]: values for name, values in state["state"].items()}, "param_groups": groups}


class AnyRanksIO(TorchCheckpointIO):
    """Lets a run of one process go on from a checkpoint of several."""

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """A file as Lightning does it, a folder as ``read_checkpoint``."""
        found = Path(path)
        return read_checkpoint(found) if found.is_dir() else super().load_checkpoint(path, map_location, weights_only)
