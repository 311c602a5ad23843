"""The LightningModule: teams of several seeds, their critics, and one optimiser that mixes none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import lightning as L
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Adam

from atgrpo.functional.losses import ppo_clip_loss
from atgrpo.functional.values import clipped_value_loss
from atgrpo.marl.actors import BuildActor
from atgrpo.marl.critics import Critic, GroupCritic, View
from atgrpo.marl.memory import keep_freed_memory
from atgrpo.marl.networks import clip_gradients
from atgrpo.marl.ppo import PPOSettings
from atgrpo.marl.types import Experience, Samples, Spec


class TeamModule(L.LightningModule):
    """Learns from ``Samples``: a clipped policy loss with a weight for each agent, and clipped value losses.

    Args:
        seeds: Of the teams.
        spec: Of the task.
        actor: What builds the actors.
        view: What the agents' critic sees.
        group_critic: Whether there is a second critic, for the team's value.
        ppo: How to learn.
    """

    def __init__(
        self,
        *,
        seeds: Sequence[int],
        spec: Spec,
        actor: BuildActor,
        view: View,
        group_critic: bool,
        ppo: PPOSettings,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.seeds = tuple(seeds)
        self.ppo = ppo
        self.actor = actor(seeds=seeds, spec=spec)
        self.critic = Critic(seeds, spec, view, ppo.critic_hidden, ppo.normalise_values)
        hidden, normalise = ppo.critic_hidden, ppo.normalise_values
        self.group_critic = GroupCritic(seeds, spec, hidden, normalise) if group_critic else None
        self._seen: dict[str, list[Tensor]] = {}

    @property
    def networks(self) -> dict[str, nn.Module]:
        """Those whose gradients are clipped each by itself."""
        found = {"actor": self.actor, "critic": self.critic, "group_critic": self.group_critic}
        return {name: network for name, network in found.items() if network is not None}

    def configure_optimizers(self) -> Any:
        """Adam works on each number by itself, so one serves all seeds and networks."""
        return Adam(self.parameters(), lr=self.ppo.lr, eps=1e-5, fused=True)

    @torch.no_grad()
    def judge(
        self, observations: Float[Tensor, "S B N D"]
    ) -> tuple[Float[Tensor, "S B N"], Float[Tensor, "S B"] | None]:
        """Values of the agents, and of the team where there is a critic for it, on the task's scale."""
        values = self.critic.scale.restored(self.critic(observations))
        if self.group_critic is None:
            return values, None
        return values, self.group_critic.scale.restored(self.group_critic(observations))

    @torch.no_grad()
    def prepared(self, experience: Experience) -> Samples:
        """All samples of an iteration that an algorithm has scored, on the critics' scale as it is after them."""
        e = experience
        if e.advantages is None or e.weights is None or e.targets is None:
            raise ValueError("experience got no advantages, expected an algorithm to have scored it")
        own = self.critic.scale
        own.update(e.targets)
        values, targets = own.normalised(e.values), own.normalised(e.targets)
        group_values = group_targets = None
        if self.group_critic is not None and e.group_values is not None and e.group_targets is not None:
            group = self.group_critic.scale
            group.update(e.group_targets)
            group_values, group_targets = group.normalised(e.group_values), group.normalised(e.group_targets)
        parts = (e.observations, e.actions, e.logprobs, e.advantages, e.weights, values, targets)
        flat = [None if x is None else x.flatten(1, 2) for x in (*parts, group_values, group_targets)]
        return Samples(*cast(Any, flat))

    def on_fit_start(self) -> None:
        """Minibatches are of one size, so what one frees the next one needs."""
        keep_freed_memory()

    def on_train_start(self) -> None:
        """A run that goes on at another rate: the optimiser's state has the old one."""
        for group in cast(Any, self.optimizers()).param_groups:
            group["lr"] = self.ppo.lr

    def transfer_batch_to_device(self, batch: Samples, device: torch.device, dataloader_idx: int) -> Samples:
        """They are there already."""
        return batch

    def training_step(self, batch: Samples, batch_idx: int) -> None:
        """One optimiser step of every seed: the losses of the seeds are added, so that each has its own gradient."""
        optimizer = cast(Any, self.optimizers())
        optimizer.zero_grad(set_to_none=True)
        self.manual_backward(self._loss(batch).sum())
        for name, network in self.networks.items():
            norm = clip_gradients(list(network.parameters()), len(self.seeds), self.ppo.clip_norm)
            if not bool(norm.isfinite().all()):
                raise FloatingPointError(f"gradient norm of the {name} is {norm.tolist()}; nothing was updated")
            self._see(f"{name}_grad_norm", norm)
        optimizer.step()

    def on_train_batch_end(self, outputs: Any, batch: Samples, batch_idx: int) -> None:
        """Only now the minibatch counts as learned: what failed on the way is not saved as finished."""
        cast(Any, self.trainer).datamodule.learned(batch_idx + 1)

    def _loss(self, batch: Samples) -> Float[Tensor, " S"]:
        ppo = self.ppo
        logprobs, entropy = self.actor.score(batch.observations, batch.actions)
        flat = logprobs.flatten(1)
        policy = ppo_clip_loss(
            flat,
            batch.logprobs.flatten(1),
            batch.advantages.flatten(1),
            torch.ones_like(flat, dtype=torch.bool),
            eps_low=ppo.clip,
            eps_high=ppo.clip,
        )
        policy_loss = (batch.weights.flatten(1) * policy.loss).mean(1)
        value_loss = self._value_loss(self.critic(batch.observations), batch.values, batch.targets)
        entropies = entropy.flatten(1).mean(1)
        loss = policy_loss + ppo.value * value_loss - ppo.entropy * entropies
        ratio = policy.ratio
        self._see("policy_loss", policy_loss)
        self._see("value_loss", value_loss)
        self._see("entropy", entropies)
        self._see("clip_fraction", policy.clipped.float().mean(1))
        self._see("approx_kl", (ratio - 1 - ratio.log()).mean(1))
        if self.group_critic is not None and batch.group_values is not None and batch.group_targets is not None:
            group_loss = self._value_loss(
                self.group_critic(batch.observations), batch.group_values, batch.group_targets
            )
            self._see("group_value_loss", group_loss)
            loss = loss + ppo.value * group_loss
        return loss

    def _value_loss(self, values: Tensor, old: Tensor, targets: Tensor) -> Float[Tensor, " S"]:
        per_value = clipped_value_loss(values, old, targets, clip=self.ppo.value_clip, huber=self.ppo.huber)
        return per_value.flatten(1).mean(1)

    def _see(self, name: str, values: Tensor) -> None:
        self._seen.setdefault(name, []).append(values.detach())

    def pop_stats(self) -> dict[str, Float[Tensor, " S"]]:
        """Metric -> mean over the optimiser steps since the last call, seed by seed."""
        means = {name: torch.stack(values).mean(0) for name, values in self._seen.items()}
        self._seen = {}
        return means
