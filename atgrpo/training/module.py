"""The LightningModule: several policies, one optimiser and one schedule each, one loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from atgrpo.functional.losses import MismatchMode, RatioLevel, aggregate, check_bounds, mismatch_weights, ppo_clip_loss
from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.training.stats import PolicyStats
from atgrpo.types import Minibatch

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """The loss of one token; how tokens add up is ``rollout.collate.Batching``.

    Args:
        eps_low: Ratio is clipped below at 1 - eps_low.
        eps_high: Ratio is clipped above at 1 + eps_high.
        dual_clip: Bound c > 1 on the ratio where the advantage is negative; None for no bound.
        ratio_level: ``token``, or ``sequence`` (GSPO).
        mismatch: Correction for an engine whose log-probs are not the trainer's own: ``truncate`` (TIS), ``mask``
            (MIS), ``none``; ``auto`` is ``truncate`` unless the engine is exact.
        mismatch_cap: Largest correction factor.
        entropy: Weight of the entropy bonus.
    """

    eps_low: float = 0.2
    eps_high: float = 0.2
    dual_clip: float | None = None
    ratio_level: RatioLevel = "token"
    mismatch: Literal["auto", "none", "truncate", "mask"] = "auto"
    mismatch_cap: float = 2.0
    entropy: float = 0.0

    def __post_init__(self) -> None:
        check_bounds(self.eps_low, self.eps_high, self.dual_clip)
        if self.mismatch_cap < 1:
            raise ValueError(f"mismatch_cap: got {self.mismatch_cap}, expected 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning-rate schedule; its length always follows from the run's, it is never given.

    Args:
        name: Shape after the warm-up; ``linear`` and ``cosine`` fall to 0 at the end.
        warmup: Share of the run's optimiser steps in which the rate rises from 0.
    """

    name: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup: got {self.warmup}, expected a share of the run from 0 to 1")

    def build(self, optimizer: Optimizer, steps: int) -> Any:
        """The schedule over ``steps`` optimiser steps."""
        from transformers import get_scheduler

        return get_scheduler(self.name, optimizer, round(self.warmup * steps), steps)


class MultiPolicyModule(L.LightningModule):
    """Trains every policy of a team on its own turns.

    Args:
        policies: Name -> what builds the policy (called in ``configure_model``, on the device and strategy in use).
        optimizers: Name -> what builds its optimiser from parameters.
        schedule: Shape of every policy's learning rate.
        total_steps: Optimiser steps of each policy in the whole run.
        loss: Of one token.
        clip_norm: Largest gradient norm, for each policy by itself.
        temperature: At which responses are sampled; log-probs are of that distribution.
    """

    def __init__(
        self,
        *,
        policies: Mapping[str, Callable[[], CausalLMPolicy]],
        optimizers: Mapping[str, OptimizerFactory],
        schedule: Schedule,
        total_steps: int,
        loss: LossSettings,
        clip_norm: float,
        temperature: float,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self._builders = policies
        self._optimizer_builders = optimizers
        self.schedule = schedule
        self.total_steps = total_steps
        self.loss = loss
        self.clip_norm = clip_norm
        self.temperature = temperature
        self.exact_engine = False
        """The engine's log-probs are the trainer's own; set by whoever starts it."""
        self.policies = nn.ModuleDict()
        self.stats: dict[str, PolicyStats] = {name: PolicyStats() for name in policies}

    @property
    def mismatch(self) -> MismatchMode:
        """The correction in use."""
        if self.loss.mismatch == "auto":
            return "none" if self.exact_engine else "truncate"
        return self.loss.mismatch

    @property
    def trainable(self) -> list[str]:
        """Names of the policies that learn, in the order of their optimisers."""
        return [name for name, policy in self.policies.items() if policy.trainable]

    def configure_model(self) -> None:
        """Builds the policies once; Lightning may call this several times."""
        if not self.policies:
            self.policies.update({name: build() for name, build in self._builders.items()})

    def configure_optimizers(self) -> Any:
        """One optimiser and one schedule per trainable policy."""
        optimizers, schedules = [], []
        for name in self.trainable:
            optimizer = self._optimizer_builders[name](self.policies[name].parameters())
            optimizers.append(optimizer)
            schedules.append({"scheduler": self.schedule.build(optimizer, self.total_steps), "name": f"lr-{name}"})
        return optimizers, schedules

    def transfer_batch_to_device(self, batch: Minibatch, device: torch.device, dataloader_idx: int) -> Minibatch:
        """Lightning's own mover cannot copy a frozen dataclass."""
        return batch.to(device)

    @torch.no_grad()
    def with_old_logprobs(self, batches: Sequence[Minibatch]) -> list[Minibatch]:
        """Fills ``old_logprobs`` by the policies as they stand; call before the iteration's first update."""
        scored = []
        for batch in batches:
            with self.trainer.precision_plugin.forward_context():
                scores = self.policies[batch.policy](batch.to(self.device), self.temperature)
            scored.append(replace(batch, old_logprobs=scores.logprobs.to(batch.weights.device)))
        return scored

    def training_step(self, batch: Minibatch, batch_idx: int) -> None:
        """One micro-batch: forward, loss, backward; at the step's last one also clip, step, schedule."""
        loss = self._loss(batch)
        self.manual_backward(loss)
        if batch.last:
            self._step(batch.policy)

    def _loss(self, batch: Minibatch) -> Tensor:
        settings = self.loss
        scores = self.policies[batch.policy](batch, self.temperature, entropy_grad=settings.entropy != 0)
        old = scores.logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
        ppo = ppo_clip_loss(
            scores.logprobs,
            old,
            batch.advantages,
            batch.loss_mask,
            eps_low=settings.eps_low,
            eps_high=settings.eps_high,
            dual_clip=settings.dual_clip,
            ratio_level=settings.ratio_level,
            branch_ids=batch.branch_ids,
        )
        correction = mismatch_weights(
            old, batch.sampler_logprobs, batch.loss_mask, mode=self.mismatch, cap=settings.mismatch_cap
        )
        per_token = ppo.loss * correction - settings.entropy * scores.entropy
        loss = aggregate(per_token, batch.weights, batch.loss_mask, batch.denominator)
        self.stats[batch.policy].add(
            mask=batch.loss_mask,
            logprobs=scores.logprobs,
            old_logprobs=old,
            sampler_logprobs=batch.sampler_logprobs,
            entropy=scores.entropy,
            ppo=ppo,
            loss=float(loss.detach()),
        )
        return loss

    def _step(self, policy: str) -> None:
        index = self.trainable.index(policy)
        optimizer, schedule = _as_list(self.optimizers())[index], _as_list(self.lr_schedulers())[index]
        norm = float(torch.nn.utils.clip_grad_norm_(self.policies[policy].parameters(), self.clip_norm))
        if not math.isfinite(norm):
            raise FloatingPointError(f"gradient norm of policy {policy!r} is {norm}; nothing was updated")
        self.stats[policy].steps.append((norm, optimizer.param_groups[0]["lr"]))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()

    def pop_stats(self) -> dict[str, dict[str, float]]:
        """Policy -> metrics of the iteration that ends now; counting starts again."""
        metrics = {name: stats.metrics() for name, stats in self.stats.items()}
        self.stats = {name: PolicyStats() for name in self.stats}
        return metrics


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
