"""Networks of several seeds at once: one batched matrix product for all, and nothing that mixes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from atgrpo.marl.seeding import NETWORKS, generator


class BatchedMLP(nn.Module):
    """``M`` networks of one shape: tanh between the layers, orthogonal weights of gain √2, the last layer of ``gain``.

    Args:
        seeds: Of the networks; those of one seed and ``stream`` start equal, however many there are.
        sizes: Of the input, the hidden layers and the output.
        gain: Of the last layer.
        stream: Tells networks of one seed apart.
    """

    def __init__(self, seeds: Sequence[tuple[int, ...]], sizes: Sequence[int], gain: float, stream: int) -> None:
        super().__init__()
        layers = list(pairwise(sizes))
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        draws = [generator(seed[0], NETWORKS, stream, *seed[1:]) for seed in seeds]
        for i, (inputs, outputs) in enumerate(layers):
            scale = gain if i == len(layers) - 1 else 2**0.5
            drawn = [nn.init.orthogonal_(torch.empty(outputs, inputs), scale, generator=draw).t() for draw in draws]
            self.weights.append(nn.Parameter(torch.stack(drawn).contiguous()))
            self.biases.append(nn.Parameter(torch.zeros(len(draws), 1, outputs)))

    def forward(self, x: Float[Tensor, "M B inputs"]) -> Float[Tensor, "M B outputs"]:
        """Each network on its own rows."""
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            x = x if i == last else tanh_(x)
        return x


def tanh_(x: Tensor) -> Tensor:
    """``tanh`` in place, within 2e-7 of it: on CPUs torch's sigmoid takes a sixth of the time of its tanh."""
    return cast(Tensor, _Tanh.apply(x))


class _Tanh(torch.autograd.Function):
    """tanh(x) = 2 sigmoid(2x) - 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.mul_(2).sigmoid_().mul_(2).sub_(1)
        ctx.mark_dirty(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradients[0], y)


class PerAgent(nn.Module):
    """A network on each agent's observation: one for all agents of a seed (``shared``), or one for each."""

    def __init__(
        self, seeds: Sequence[int], agents: int, sizes: Sequence[int], *, shared: bool, gain: float, stream: int
    ) -> None:
        super().__init__()
        self.agents = agents
        self.copies = 1 if shared else agents
        """Networks of a seed."""
        members = [(seed, copy) for seed in seeds for copy in range(self.copies)]
        self.mlp = BatchedMLP(members, sizes, gain, stream)

    def forward(self, x: Float[Tensor, "S B N D"]) -> Float[Tensor, "S B N outputs"]:
        """Row by row."""
        seeds, rows = x.shape[:2]
        if self.copies == 1:
            return self.mlp(x.reshape(seeds, rows * self.agents, -1)).view(seeds, rows, self.agents, -1)
        own = x.transpose(1, 2).reshape(seeds * self.agents, rows, -1)
        return self.mlp(own).view(seeds, self.agents, rows, -1).transpose(1, 2)


def norms(parameters: Sequence[nn.Parameter], seeds: int) -> Float[Tensor, " S"]:
    """Each seed's norm of the gradients; the first dimension of a parameter is a multiple of the seeds."""
    squares = [p.grad.reshape(seeds, -1).square().sum(1) for p in parameters if p.grad is not None]
    return torch.stack(squares).sum(0).sqrt()


def clip_gradients(parameters: Sequence[nn.Parameter], seeds: int, largest: float) -> Float[Tensor, " S"]:
    """Scales each seed's gradients to a norm of at most ``largest``, whatever the others' are; returns the norms."""
    found = norms(parameters, seeds)
    scale = (largest / (found + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.view(seeds, -1).mul_(scale.unsqueeze(1))
    return found
