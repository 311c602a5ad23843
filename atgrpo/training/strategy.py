"""One strategy for two processes of a laptop and for several nodes: FSDP2 over all ranks."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
from lightning.fabric.strategies.model_parallel import _METADATA_FILENAME, _load_checkpoint
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from atgrpo.policies.sharding import Sharding
from atgrpo.ranks import Ranks
from atgrpo.training.checkpoints import LOCAL_STATES, local_states, saved_names
from atgrpo.training.module import MultiPolicyModule


class FSDP2(ModelParallelStrategy):
    """Shards every policy by itself over all ranks. A checkpoint is a folder to which each rank writes its part.

    Optimisers whose state torch cannot shard (8-bit ones) say ``keeps_local_shards``; each rank writes a file with its
    own part of theirs.

    Args:
        reshard_after_forward: Gather layers again for the backward pass instead of keeping them.
        timeout_minutes: How long a rank waits for the others, rollouts included, before the run counts as hung.
    """

    def __init__(self, reshard_after_forward: bool = True, timeout_minutes: float = 120.0) -> None:
        super().__init__(
            data_parallel_size=1,  # set once the number of processes is known
            tensor_parallel_size=1,
            save_distributed_checkpoint=True,
            timeout=timedelta(minutes=timeout_minutes),
        )
        self._reshard_after_forward = reshard_after_forward

    def setup_environment(self) -> None:
        """Starts the processes' group, divides the cores of a machine without GPUs, and tells the module the mesh."""
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()
        if self.root_device.type == "cpu":
            pin(Ranks.current().share())
        module = cast(MultiPolicyModule, self.lightning_module)
        mixed = cast(Any, self.precision_plugin).precision == "bf16-mixed"
        module.sharding = Sharding(
            self.device_mesh["data_parallel"], torch.bfloat16 if mixed else None, self._reshard_after_forward
        )

    def _get_process_group_backend(self) -> str:
        # What ranks tell each other as Python objects goes over gloo, which waits for slow rollouts without a watchdog.
        return "gloo" if self.root_device.type == "cpu" else "cpu:gloo,cuda:nccl"

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Sharded, or this rank's own."""
        inner = _inner(optimizer)
        return {"local": inner.local_state()} if _local(inner) else super().optimizer_state(optimizer)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Every rank writes its part of the folder ``filepath``."""
        states = checkpoint["optimizer_states"]
        local = {i: state.pop("local") for i, state in enumerate(states) if set(state) == {"local"}}
        super().save_checkpoint(checkpoint, filepath, storage_options)
        if local:
            torch.save(local, Path(self.broadcast(filepath)) / LOCAL_STATES.format(self.global_rank))

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """From such a folder, or from the file that one process writes; the number of ranks may differ."""
        path = Path(self.broadcast(checkpoint_path))
        if path.is_file():
            return self._load_file(path)
        module = cast(MultiPolicyModule, self.lightning_module)
        module.on_load_checkpoint(torch.load(path / _METADATA_FILENAME, weights_only=True))
        module.check_names(saved_names(path))
        sharded = {f"optimizer_{i}": o for i, o in enumerate(self.optimizers) if not _local(_inner(o))}
        rest = _load_checkpoint(path, {"state_dict": self.model, **sharded}, weights_only=weights_only)
        for i, state in local_states(path).items():
            _inner(self.optimizers[i]).load_local_state(state)
        return rest

    def _load_file(self, path: Path) -> dict[str, Any]:
        # Lightning's own way numbers the parameters of all optimisers as if there were one, and misses tied ones.
        rest: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        state = rest.pop("state_dict")
        module = cast(MultiPolicyModule, self.lightning_module)
        module.on_load_checkpoint(rest)
        module.check_names(state)
        assert self.model is not None
        # Not strict: torch adds the second names of tied weights itself.
        options = StateDictOptions(full_state_dict=True, strict=False)
        set_model_state_dict(self.model, state, options=options)
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for optimizer, state in zip(map(_inner, self.optimizers), rest.pop("optimizer_states"), strict=True):
            if _local(optimizer):
                optimizer.load_local_state(state)
                continue
            own = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
            groups = [{**group, "params": [own[i] for i in group["params"]]} for group in state["param_groups"]]
            named: dict[str, Any] = {
                "state": {own[i]: values for i, values in state["state"].items()},
                "param_groups": groups,
            }
            set_optimizer_state_dict(self.model, optimizer, named, options=options)
        return rest


def pin(cores: list[int]) -> None:
    """Keeps this process, its threads and its children to ``cores``; unpinned ranks are several times slower."""
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(len(cores))
    torch.set_num_threads(len(cores))


def _inner(optimizer: Any) -> Any:
    return optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer


def _local(optimizer: Any) -> bool:
    return getattr(optimizer, "keeps_local_shards", False)
