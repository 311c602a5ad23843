"""8-bit AdamW for whole parameters and for the row shards of FSDP2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import bitsandbytes as bnb
import torch
from bitsandbytes import functional as quantisation
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

BLOCK = 256
"""Neighbouring elements that share one scale; fixed in the kernels of bitsandbytes."""
MOMENTS = (1, 2)


class AdamW8bit(bnb.optim.AdamW8bit):
    """AdamW whose two moments take a byte per element, held for this rank's shard only.

    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g^2``, ``p = (1 - lr wd) p - lr m' / (sqrt(v') + eps)`` with
    ``m', v'`` free of their start at 0. Between steps a block of 256 elements is kept as codes and one scale.

    A parameter of fewer than ``min_8bit_size`` elements keeps float32 moments. The whole parameter's size decides, so
    every number of ranks treats it alike. A rank that owns no rows of a parameter only counts its steps.

    FSDP2 gives rank r the rows from ``r * ceil(rows / ranks)`` on. Where that row begins at a multiple of 256 elements
    (always, if a row's length is one), the blocks are those of the whole parameter, and sharded and unsharded steps
    agree to float rounding. Elsewhere blocks are cut in other places, and the moments agree to quantisation error only.

    Dettmers et al. 2021, "8-bit Optimizers via Block-wise Quantization" (arXiv:2110.02861).

    Args:
        params: Whole or sharded by rows.
        lr: Learning rate.
        betas: Decay of the first and of the second moment.
        eps: Keeps the division finite.
        weight_decay: Decoupled from the gradient.
        min_8bit_size: Elements from which on a parameter's moments are 8-bit.
        paged: Moments live in memory that CUDA moves out to the host when the GPU runs short. Needs CUDA.
    """

    keeps_local_shards = True
    """Its state is this rank's own; each rank saves ``local_state``."""

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        min_8bit_size: int = 4096,
        paged: bool = False,
    ) -> None:
        if paged and not torch.cuda.is_available():
            raise ValueError("paged: got True on a machine without CUDA, expected a GPU or paged=false")
        super().__init__(params, lr, betas, eps, weight_decay, min_8bit_size=min_8bit_size, is_paged=paged)
        for group in self.param_groups:
            for p in group["params"]:
                _start(p)

    @torch.no_grad()
    def init_state(self, group: dict[str, Any], p: Tensor, gindex: int, pindex: int) -> None:
        """Zero moments; bitsandbytes asks for the size of all of ``p``, and gets buffers for its shard."""
        super().init_state(group, p, gindex, pindex)
        state = self.state[p]
        for key in ("absmax1", "absmax2"):
            if key in state:
                state[key] = state[key][: _blocks(state["state1"].numel())].clone()

    def get_state_buffer(self, p: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Zeros for this rank's shard of ``p``."""
        return super().get_state_buffer(_local(p), dtype)

    @torch.no_grad()
    def update_step(self, group: dict[str, Any], p: Tensor, gindex: int, pindex: int) -> None:
        """One step of ``p``, in place in its shard."""
        if not isinstance(p, DTensor):
            super().update_step(group, p, gindex, pindex)
            return
        state = self.state[p]
        if state["state1"].numel() == 0:
            state["step"] += 1
            return
        # The kernels know plain tensors only; this one shares the shard's memory.
        shard = nn.Parameter(_local(p), requires_grad=False)
        assert p.grad is not None
        shard.grad = _local(p.grad)
        self.state[shard] = state
        try:
            super().update_step(group, shard, gindex, pindex)
        finally:
            del self.state[shard]

    def local_state(self) -> dict[str, Any]:
        """This rank's shard of the state, in tensors and primitives; the tensors are the live ones, not copies."""
        places = {p: place for place, p in enumerate(p for group in self.param_groups for p in group["params"])}
        groups = [{**group, "params": [places[p] for p in group["params"]]} for group in self.param_groups]
        state = {place: _saved(p, self.state[p]) for p, place in places.items() if self.state.get(p)}
        return {"state": state, "param_groups": groups}

    @torch.no_grad()
    def load_local_state(self, state: Mapping[str, Any]) -> None:
        """Takes over a ``local_state`` that covers this rank's shards, bit for bit where blocks coincide.

        That is so for the same number of ranks, and where this rank begins at a multiple of 256 elements after the
        saved shard's beginning. Other shards are dequantised and quantised again.

        Args:
            state: This rank's own, or any that covers more: of one process, or from ``merge_local_states``.
        """
        got, expected = ([len(g["params"]) for g in groups] for groups in (state["param_groups"], self.param_groups))
        if got != expected:
            raise ValueError(f"param_groups: got {got} parameters in the groups, expected {expected}")
        for gindex, (group, saved) in enumerate(zip(self.param_groups, state["param_groups"], strict=True)):
            group.update({key: value for key, value in saved.items() if key != "params"})
            for pindex, place in enumerate(saved["params"]):
                self._load(group, gindex, pindex, state["state"].get(place))

    def _load(self, group: dict[str, Any], gindex: int, pindex: int, saved: Mapping[str, Any] | None) -> None:
        p = group["params"][pindex]
        if saved is None:
            self.state.pop(p, None)
            return
        if saved["shape"] != list(p.shape):
            raise ValueError(f"state: got a parameter of shape {saved['shape']}, expected {list(p.shape)}")
        # Filling the buffers, not replacing them, keeps paged ones paged.
        if not self.state.get(p):
            self.init_state(group, p, gindex, pindex)
        state = self.state[p]
        state["step"] = saved["step"]
        size = state["state1"].numel()
        if size == 0:
            return
        if saved["state1"].dtype != state["state1"].dtype:
            raise ValueError(f"state: got moments of {saved['state1'].dtype}, expected {state['state1'].dtype}")
        for key, value in _cut(saved, _start(p), size).items():
            state[key].view(-1).copy_(value)

    def state_dict(self) -> dict[str, Any]:
        """What ``local_state`` gives; complete for one process."""
        return self.local_state()

    def load_state_dict(self, state_dict: Mapping[str, Any], move_to_device: bool = True) -> None:
        """What ``load_local_state`` does; state always goes to where the parameters are."""
        self.load_local_state(state_dict)


def merge_local_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The state of the whole parameters, as one process would hold it, from that of every rank.

    Exact where every shard begins at a multiple of 256 elements. Other 8-bit moments are dequantised and quantised
    again: good to go on from, not bit for bit.

    Args:
        states: ``local_state`` of each rank, in any order.
    """
    first = states[0]
    places = [set(state["state"]) for state in states]
    if any(other != places[0] for other in places):
        raise ValueError(f"states: got {places} with moments, expected the same parameters on every rank")
    merged = {place: _join([state["state"][place] for state in states]) for place in first["state"]}
    return {"state": merged, "param_groups": first["param_groups"]}


def _local(p: Tensor) -> Tensor:
    return (p.to_local() if isinstance(p, DTensor) else p).detach()


def _start(p: Tensor) -> int:
    """Where this rank's shard begins in the flattened parameter."""
    if not isinstance(p, DTensor):
        return 0
    [chunk] = p.__create_chunk_list__()
    if chunk.sizes[1:] != p.shape[1:]:
        raise ValueError(f"params: got placements {p.placements}, expected shards of whole rows")
    return chunk.offsets[0] * math.prod(p.shape[1:])


def _blocks(elements: int) -> int:
    return -(-elements // BLOCK)


def _saved(p: Tensor, state: Mapping[str, Any]) -> dict[str, Any]:
    tensors = [key for moment in MOMENTS for key in (f"state{moment}", f"absmax{moment}") if key in state]
    place = {"step": state["step"], "shape": list(p.shape), "start": _start(p)}
    # No maps of codes: they are constants.
    return place | {key: state[key].view(-1) for key in tensors}


def _cut(saved: Mapping[str, Any], start: int, size: int) -> dict[str, Tensor]:
    """Moments of the ``size`` elements from ``start`` on."""
    begin, end = start - saved["start"], start - saved["start"] + size
    if begin < 0 or end > saved["state1"].numel():
        got = (saved["start"], saved["start"] + saved["state1"].numel())
        raise ValueError(f"state: got elements {got[0]} to {got[1]}, expected {start} to {start + size} among them")
    if "absmax1" in saved and begin % BLOCK:
        return _quantised([_dequantised(saved, moment)[begin:end] for moment in MOMENTS])
    cuts = {"state": slice(begin, end), "absmax": slice(begin // BLOCK, _blocks(end))}
    keys = [f"{name}{moment}" for name in cuts for moment in MOMENTS]
    return {key: saved[key][cuts[key[:-1]]] for key in keys if key in saved}


def _join(shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One parameter's moments from all its shards; equal shards, of replicas, count once."""
    filled = {shard["start"]: shard for shard in shards if shard["state1"].numel()}
    ordered = [filled[start] for start in sorted(filled)]
    end, whole = 0, math.prod(shards[0]["shape"])
    for shard in ordered:
        if shard["start"] != end:
            break
        end += shard["state1"].numel()
    if end != whole:
        raise ValueError(f"states: got the first {end} of {whole} elements, expected the states of all ranks")
    place = {"step": shards[0]["step"], "shape": shards[0]["shape"], "start": 0}
    if "absmax1" in ordered[0] and any(shard["start"] % BLOCK for shard in ordered):
        floats = [torch.cat([_dequantised(shard, moment) for shard in ordered]) for moment in MOMENTS]
        return place | _quantised(floats)
    return place | {key: torch.cat([shard[key] for shard in ordered]) for key in ordered[0] if key not in place}


@cache
def _codes(moment: int) -> Tensor:
    """Value of each code; only the first moment has a sign."""
    return quantisation.create_dynamic_map(signed=moment == 1)


def _dequantised(saved: Mapping[str, Any], moment: int) -> Tensor:
    codes, scales = saved[f"state{moment}"], saved[f"absmax{moment}"]
    return quantisation.dequantize_blockwise(codes, absmax=scales, code=_codes(moment), blocksize=BLOCK)


def _quantised(moments: Sequence[Tensor]) -> dict[str, Tensor]:
    quantised: dict[str, Tensor] = {}
    for moment, values in zip(MOMENTS, moments, strict=True):
        codes, scales = quantisation.quantize_blockwise(values, _codes(moment), blocksize=BLOCK)
        quantised |= {f"state{moment}": codes, f"absmax{moment}": scales.absmax}
    return quantised
