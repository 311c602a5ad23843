"""The LightningModule: several policies, one optimiser and one schedule each, one loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import lightning as L
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from atgrpo.functional.kl import kl_loss
from atgrpo.functional.losses import MismatchMode, aggregate, mismatch_weights, ppo_clip_loss
from atgrpo.policies.packed import PackedPolicy, PolicyError, TokenScores
from atgrpo.policies.sharding import Sharding, full
from atgrpo.ranks import Ranks
from atgrpo.training.checkpoints import CheckpointError
from atgrpo.training.loss import LossSettings
from atgrpo.training.minibatches import Minibatches
from atgrpo.training.schedule import Schedule, set_rates
from atgrpo.training.stats import PolicyStats
from atgrpo.types import Minibatch

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


class MultiPolicyModule(L.LightningModule):
    """Trains every policy of a team on its own turns.

    Args:
        policies: Name -> what builds the policy, called in ``configure_model`` as ``build(name=..., peers=...)`` with
            the policies built before, with which it may share a base or a reference; and with ``reference=True`` where
            the loss compares with one.
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
        policies: Mapping[str, Callable[..., PackedPolicy]],
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
        self.sharding: Sharding | None = None
        """Set by a strategy that shards."""
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
        """Names of the policies that learn, in the order of their optimisers, which is not that of the roles."""
        return sorted(name for name in self.policies if self._policy(name).trainable)

    @cached_property
    def ranks(self) -> Ranks:
        """The processes of the run; asked for once the trainer has started them."""
        return Ranks.current()

    def configure_model(self) -> None:
        """Builds the policies once, and shards them where the strategy has a mesh; Lightning calls it several times.

        Raises:
            PolicyError: a policy refuses its settings or its model.
        """
        if self.policies:
            return
        for name, build in self._builders.items():
            reference = {"reference": True} if self.loss.kl else {}
            try:
                self.policies[name] = build(name=name, peers=self.policies, **reference)
            except ValueError as error:
                raise PolicyError(f"policies.{name}: {error}") from error
        for name in self.policies:
            if self.sharding is not None:
                self._policy(name).shard(self.sharding)
            self._policy(name).materialize("cpu" if self.sharding is None else self.sharding.mesh.device_type)

    def _policy(self, name: str) -> PackedPolicy:
        return cast(PackedPolicy, self.policies[name])

    def configure_optimizers(self) -> Any:
        """One optimiser and one schedule per trainable policy."""
        optimizers, schedules = [], []
        for name in self.trainable:
            optimizer = self._optimizer_builders[name](p for _, p in self._policy(name).trained_parameters())
            optimizers.append(optimizer)
            schedules.append({"scheduler": self.schedule.build(optimizer, self.total_steps), "name": f"lr-{name}"})
        return optimizers, schedules

    def on_train_start(self) -> None:
        """A resumed run may be longer than the one that saved the rates."""
        for schedule in _as_list(self.lr_schedulers()):
            set_rates(schedule)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Whose the optimiser states are."""
        checkpoint["trainable"] = self.trainable
        checkpoint["optimizer_kinds"] = self._optimizer_kinds()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuses those of other policies.

        Raises:
            CheckpointError: the policies that learn are not those that learned.
        """
        if (saved := checkpoint.get("trainable")) != self.trainable:
            expected = f"got optimisers of {saved}, expected {self.trainable}"
            raise CheckpointError(f"the checkpoint does not fit the recipe's policies: {expected}")
        if (kinds := checkpoint.get("optimizer_kinds")) != self._optimizer_kinds():
            raise CheckpointError(f"optimizer: got {self._optimizer_kinds()}, expected the checkpoint's {kinds}")

    def _optimizer_kinds(self) -> list[str]:
        builders = (self._optimizer_builders[name] for name in self.trainable)
        return [getattr(build, "func", build).__qualname__ for build in builders]

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What training changes. A base, a reference or a frozen policy is as its folder has it."""
        whole = super().state_dict(*args, **kwargs)
        return {name: whole[name] for name in self._trained_names()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Restores it.

        Raises:
            CheckpointError: see ``check_names``.
        """
        if strict:
            self.check_names(state_dict)
        try:
            return super().load_state_dict(state_dict, strict=False, assign=assign)
        except RuntimeError as error:
            cause = str(error).splitlines()[-1].strip()
            raise CheckpointError(f"the checkpoint does not fit the recipe's policies: {cause}") from error

    def check_names(self, state_dict: Mapping[str, Any]) -> None:
        """Refuses weights of other policies.

        Raises:
            CheckpointError: names that training changes are missing, or others are there.
        """
        expected = set(self._trained_names())
        if differing := sorted(expected ^ set(state_dict)):
            what = "is not in the checkpoint" if differing[0] in expected else "is unknown to these policies"
            text = f"the checkpoint does not fit the recipe's policies: {differing[0]} {what}"
            raise CheckpointError(f"{text}; were all settings of the run given?")

    def _trained_names(self) -> list[str]:
        return [f"policies.{p}.{n}" for p in self.trainable for n, _ in self._policy(p).trained_parameters()]

    def transfer_batch_to_device(self, batch: Minibatch, device: torch.device, dataloader_idx: int) -> Minibatch:
        """Lightning's own mover cannot copy a frozen dataclass."""
        return batch.to(device)

    @torch.no_grad()
    def prepared(self, batches: Sequence[Minibatch], *, several_steps: bool) -> list[Minibatch]:
        """Fills in log-probs as they are before the iteration's first update.

        ``old_logprobs`` of the policies as they stand where there are ``several_steps``, ``ref_logprobs`` where the
        loss has a KL penalty.
        """
        return [self._prepared(batch, several_steps) for batch in batches]

    def _prepared(self, batch: Minibatch, several_steps: bool) -> Minibatch:
        if not (several_steps or self.loss.kl):
            return batch
        policy, moved = self._policy(batch.policy), batch.to(self.device)
        device = batch.weights.device
        with self.trainer.precision_plugin.forward_context():
            if several_steps:
                scores: TokenScores = policy(moved, self.temperature)
                batch = replace(batch, old_logprobs=scores.logprobs.to(device))
            if self.loss.kl:
                batch = replace(batch, ref_logprobs=policy.reference_logprobs(moved, self.temperature).to(device))
        return batch

    def training_step(self, batch: Minibatch, batch_idx: int) -> None:
        """One micro-batch: forward, loss, backward; at the step's last one also clip, step, schedule."""
        policy = self._policy(batch.policy)
        loss = self._loss(batch)
        policy.accumulate(not batch.last)
        self.manual_backward(loss)
        if batch.last:
            self._step(batch.policy)

    def on_train_batch_end(self, outputs: Any, batch: Minibatch, batch_idx: int) -> None:
        """Only now an iteration counts as learned: what failed on the way is not saved as finished."""
        loader = self.trainer.train_dataloader
        if isinstance(loader, Minibatches):
            loader.done = batch_idx + 1

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
        if batch.ref_logprobs is not None:
            per_token = per_token + settings.kl * kl_loss(
                scores.logprobs, batch.ref_logprobs, batch.loss_mask, settings.kl_estimator
            )
        loss = aggregate(per_token, batch.weights, batch.loss_mask, batch.denominator)
        self.stats[batch.policy].add(
            mask=batch.loss_mask,
            logprobs=scores.logprobs,
            old_logprobs=old,
            sampler_logprobs=batch.sampler_logprobs,
            ref_logprobs=batch.ref_logprobs,
            entropy=scores.entropy,
            ppo=ppo,
            loss=float(loss.detach()),
        )
        return loss

    def _step(self, policy: str) -> None:
        index = self.trainable.index(policy)
        optimizer, schedule = _as_list(self.optimizers())[index], _as_list(self.lr_schedulers())[index]
        parameters = [p for _, p in self._policy(policy).trained_parameters()]
        norm = float(full(torch.nn.utils.clip_grad_norm_(parameters, self.clip_norm)))
        if not math.isfinite(norm):
            raise FloatingPointError(f"gradient norm of policy {policy!r} is {norm}; nothing was updated")
        self.stats[policy].steps.append((norm, optimizer.param_groups[0]["lr"]))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()

    def pop_stats(self) -> dict[str, dict[str, float]]:
        """Policy -> metrics of the iteration that ends now, over all ranks; counting starts again."""
        of_ranks = self.ranks.gather({name: stats.on_cpu() for name, stats in self.stats.items()})
        metrics = {name: PolicyStats.merged([stats[name] for stats in of_ranks]).metrics() for name in self.stats}
        self.stats = {name: PolicyStats() for name in self.stats}
        return metrics


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
