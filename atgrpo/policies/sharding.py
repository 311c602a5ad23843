"""FSDP2 for one policy: every rank keeps a part of each parameter and gathers a layer at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor


@dataclass(frozen=True)
class Sharding:
    """How policies are sharded.

    Args:
        mesh: All ranks, in one dimension.
        compute: What layers are gathered and computed in; the ranks' own parts stay as they are (float32).
        reshard_after_forward: Drop a gathered layer after its forward pass and gather it again for the backward pass.
    """

    mesh: DeviceMesh
    compute: torch.dtype | None = None
    reshard_after_forward: bool = True

    def apply(self, root: nn.Module, layers: Iterable[nn.Module], replicated: Collection[nn.Parameter] = ()) -> None:
        """Shards each of ``layers`` by itself and the rest of ``root``; ``replicated`` stay whole on every rank."""
        whole = set(replicated)
        # Gradients are added up in float32: the loss's denominator is that of all ranks, so their sum is the gradient.
        precision = MixedPrecisionPolicy(
            param_dtype=self.compute, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
        for layer in layers:
            fully_shard(
                layer,
                mesh=self.mesh,
                mp_policy=precision,
                reshard_after_forward=self.reshard_after_forward,
                ignored_params=whole,
            )
        fully_shard(root, mesh=self.mesh, mp_policy=precision, reshard_after_forward=False, ignored_params=whole)
        for module in sharded_modules(root):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def sharded_modules(root: nn.Module) -> Iterator[FSDPModule]:
    """Those that gather parameters; none where nothing is sharded."""
    return (module for module in root.modules() if isinstance(module, FSDPModule))


def reshard(root: nn.Module) -> None:
    """Drops what was gathered: a root keeps it after its last forward pass."""
    for module in sharded_modules(root):
        module.reshard()


def full(tensor: Tensor) -> Tensor:
    """The whole tensor without a gradient; where it is sharded, all ranks must ask for it."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def named_full(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(name, whole tensor) of every parameter, one at a time, tied ones once; all ranks must walk it to the end."""
    reshard(module)
    for name, parameter in module.named_parameters():
        yield name, full(parameter)
