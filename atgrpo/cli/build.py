"""From a checked configuration to the objects that run."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from atgrpo.cli.config import ConfigError
from atgrpo.training.callbacks.checkpoint import IterationCheckpoint
from atgrpo.training.callbacks.console import Console
from atgrpo.training.callbacks.metrics import IterationMetrics
from atgrpo.training.callbacks.stop import GracefulStop
from atgrpo.training.datamodule import RolloutDataModule
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.team import Team, check_roles

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Parts:
    """What a configuration builds. Nothing heavy is started yet."""

    config: DictConfig
    sampler: Any
    data: Any
    advantage: Any
    batching: Any

    def module(self) -> MultiPolicyModule:
        """The LightningModule; policies are loaded by its ``configure_model``."""
        c = self.config
        return MultiPolicyModule(
            policies={name: instantiate(node) for name, node in c.policies.items()},
            optimizers={name: instantiate(node) for name, node in c.optimizers.items()},
            schedule=instantiate(c.schedule),
            total_steps=c.iterations * self.batching.steps_per_iteration,
            loss=instantiate(c.loss),
            clip_norm=c.clip_norm,
            temperature=self.sampler.temperature,
        )

    def start_team(self, policies: Mapping[str, Any]) -> Team:
        """Starts the engine for ``policies``."""
        c = self.config
        team = Team(
            engine=instantiate(c.engine),
            environment=instantiate(c.env),
            agents=dict(c.agents),
            policies=policies,
            max_prompt_tokens=c.max_prompt_tokens,
            workers=c.workers,
        )
        print(f"engine: {team.engine.name}", flush=True)
        return team

    def datamodule(self) -> RolloutDataModule:
        """The rollout data; the engine starts when it is first needed."""
        return RolloutDataModule(
            data=self.data,
            start_team=self.start_team,
            sampler=self.sampler,
            prompts_per_iteration=self.config.prompts_per_iteration,
            batching=self.batching,
            group_filter=instantiate(self.config.group_filter),
            seed=self.config.seed,
        )

    def trainer(self, run: Path) -> L.Trainer:
        """The trainer with every callback of a run that is kept in ``run``."""
        c = self.config
        metrics = IterationMetrics()
        checkpoint: IterationCheckpoint = instantiate(c.checkpoint)(run / CHECKPOINTS)
        samples = instantiate(c.samples)
        heldout = instantiate(c.heldout)
        callbacks = [self.advantage, GracefulStop(), metrics, Console(metrics, c.agents), samples, heldout, checkpoint]
        trainer: L.Trainer = instantiate(c.trainer)(
            max_epochs=c.iterations,
            callbacks=callbacks,
            logger=instantiate(c.logger)(save_dir=str(run)),
            default_root_dir=str(run),
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            inference_mode=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
        )
        return trainer


def build(config: DictConfig) -> Parts:
    """Instantiates what is light and checks that the parts fit each other.

    Raises:
        ConfigError: a part refuses its settings, or two parts do not fit.
    """
    try:
        return _build(config)
    except InstantiationException as error:
        raise ConfigError(str(error.__cause__ or error)) from error
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _build(config: DictConfig) -> Parts:
    parts = Parts(
        config=config,
        sampler=instantiate(config.sampler, _convert_="all"),
        data=instantiate(config.data, _convert_="all"),
        advantage=instantiate(config.advantage),
        batching=instantiate(config.batching),
    )
    if parts.sampler.temperature <= 0:
        raise ValueError(f"sampler.temperature: got {parts.sampler.temperature}, expected more than 0 to learn from")
    if not any(node.get("trainable", True) for node in config.policies.values()):
        raise ValueError("policies: all have trainable=false, expected at least one that learns")
    environment = instantiate(config.env, _convert_="all")()
    check_roles(config.agents, environment)
    if parts.sampler.credit == "step" and not environment.step_rewards_complete:
        print(
            f"warning: {type(environment).__name__} has steps without a reward of their own, and sampler.credit=step "
            "teaches the team to avoid them; consider credit=continuation or backup (tree) or outcome (parallel)"
        )
    return parts


def quiet() -> None:
    """Notices of other packages about hardware and loading say nothing that a run does not print itself."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("bitsandbytes", "vllm", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def as_yaml(config: DictConfig) -> str:
    """The resolved configuration."""
    return OmegaConf.to_yaml(config, resolve=True)
