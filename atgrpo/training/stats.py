"""What the optimiser steps of one policy looked like over one iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atgrpo.functional.kl import kl_estimate
from atgrpo.functional.losses import PPOLoss


@dataclass(slots=True)
class PolicyStats:
    """Running sums over the tokens that were computed: equal responses once, those without an advantage not at all."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    maxima: dict[str, Tensor] = field(default_factory=dict)
    tokens: int = 0
    loss: float = 0.0
    steps: list[tuple[float, float]] = field(default_factory=list)
    """(gradient norm before clipping, learning rate) of each optimiser step."""

    def add(
        self,
        *,
        mask: Bool[Tensor, "B T"],
        logprobs: Float[Tensor, "B T"],
        old_logprobs: Float[Tensor, "B T"],
        sampler_logprobs: Float[Tensor, "B T"],
        ref_logprobs: Float[Tensor, "B T"] | None,
        entropy: Float[Tensor, "B T"],
        ppo: PPOLoss,
        loss: float,
    ) -> None:
        """One micro-batch."""
        self.loss += loss
        if not mask.any():
            return
        self.tokens += int(mask.sum())
        mismatch = (old_logprobs - sampler_logprobs).detach().abs()[mask]
        kl = kl_estimate(sampler_logprobs, logprobs, "k3")
        seen = {
            "ratio": ppo.ratio[mask],
            "clip_fraction": ppo.clipped[mask].float(),
            "entropy": entropy.detach()[mask],
            "kl_to_behaviour": kl[mask],
            "logprob_mismatch": mismatch,
        }
        if ref_logprobs is not None:
            seen["kl_to_reference"] = kl_estimate(logprobs, ref_logprobs, "k3")[mask]
        for name, values in seen.items():
            self.sums[name] = self.sums.get(name, torch.zeros((), device=values.device)) + values.sum()
        for name, values in (("ratio_max", ppo.ratio[mask]), ("logprob_mismatch_max", mismatch)):
            self.maxima[name] = torch.maximum(self.maxima.get(name, values.max()), values.max())

    def on_cpu(self) -> PolicyStats:
        """The same sums, ready to be sent to other ranks."""
        sums, maxima = ({name: t.cpu() for name, t in part.items()} for part in (self.sums, self.maxima))
        return PolicyStats(sums, maxima, self.tokens, self.loss, self.steps)

    @classmethod
    def merged(cls, parts: Sequence[PolicyStats]) -> PolicyStats:
        """Those of several ranks, which took the same optimiser steps on different tokens."""
        out = cls(steps=parts[0].steps)
        for part in parts:
            out.tokens += part.tokens
            out.loss += part.loss
            for name, total in part.sums.items():
                out.sums[name] = out.sums.get(name, torch.zeros(())) + total
            for name, value in part.maxima.items():
                out.maxima[name] = torch.maximum(out.maxima.get(name, value), value)
        return out

    def metrics(self) -> dict[str, float]:
        """Means over the trained tokens, maxima, and means over the optimiser steps; NaN where there was nothing."""
        out = {name: float(total) / self.tokens for name, total in self.sums.items()}
        out |= {name: float(value) for name, value in self.maxima.items()}
        norms = [norm for norm, _ in self.steps]
        out["grad_norm"] = sum(norms) / len(norms) if norms else math.nan
        out["learning_rate"] = self.steps[-1][1] if self.steps else math.nan
        out["loss"] = self.loss / len(self.steps) if self.steps else math.nan
        out["trained_tokens"] = float(self.tokens)
        return out
