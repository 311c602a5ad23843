"""From a checked configuration to the objects that run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import lightning as L
import torch.distributed as dist
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from atgrpo.cli.config import ConfigError
from atgrpo.cli.runs import RunFolder
from atgrpo.data.base import Split
from atgrpo.engines.placement import OwnProcess
from atgrpo.envs.base import Environment
from atgrpo.policies.sources import model_folder
from atgrpo.ranks import Ranks
from atgrpo.rollout.collate import Batching
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.sandbox.runner import SandboxError
from atgrpo.training.callbacks.advantage import AdvantageCallback
from atgrpo.training.callbacks.checkpoint import IterationCheckpoint
from atgrpo.training.callbacks.console import Console
from atgrpo.training.callbacks.metrics import IterationMetrics
from atgrpo.training.callbacks.stop import GracefulStop
from atgrpo.training.checkpoints import AnyRanksIO
from atgrpo.training.datamodule import RolloutDataModule
from atgrpo.training.filters import GroupFilter
from atgrpo.training.loss import LossSettings
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.say import say
from atgrpo.training.schedule import Schedule
from atgrpo.training.team import Team, check_roles
from atgrpo.training.warm_start import Task, WarmStart

TRAINER_SETTINGS = {
    "accelerator",
    "benchmark",
    "detect_anomaly",
    "deterministic",
    "devices",
    "num_nodes",
    "precision",
    "profiler",
    "strategy",
}
"""What a recipe may set of Lightning's trainer; the rest follows from the recipe itself."""
PRECISIONS = ("32-true", "bf16-mixed")


def make(node: Any) -> Any:
    """Instantiates a node with plain lists and dictionaries; nothing for null."""
    return None if node is None else instantiate(node, _convert_="all")


@dataclass(frozen=True)
class Parts:
    """What a configuration builds. Nothing heavy is started yet."""

    config: DictConfig
    sampler: Any
    data: Any
    advantage: AdvantageCallback
    batching: Batching
    loss: LossSettings
    schedule: Schedule
    group_filter: GroupFilter
    warm_start: WarmStart
    heldout: L.Callback | None
    role_health: L.Callback
    return_to_best: L.Callback | None
    samples: L.Callback | None
    checkpoint: IterationCheckpoint
    engine_process: OwnProcess
    environment: Callable[[], Environment]

    def module(self) -> MultiPolicyModule:
        """The LightningModule; policies are loaded by its ``configure_model``."""
        c = self.config
        return MultiPolicyModule(
            policies={name: make({**node, "model": model}) for name, node, model in self._models()},
            optimizers={name: make(node) for name, node in c.optimizers.items()},
            schedule=self.schedule,
            total_steps=c.iterations * self.batching.steps_per_iteration,
            loss=self.loss,
            clip_norm=c.clip_norm,
            temperature=self.sampler.temperature,
        )

    def _models(self) -> Iterator[tuple[str, Any, str]]:
        """(policy, its settings, the model that it starts from)."""
        c = self.config
        nodes: dict[str, Any] = {name: OmegaConf.to_container(node) for name, node in c.policies.items()}
        description = OmegaConf.to_yaml({key: c[key] for key in ("env", "data", "agents", "chat_template")})
        task = Task(self.environment, self.data, c.agents, self.sampler, c.chat_template, description)
        for name, node in nodes.items():
            alike = frozenset(other for other in nodes if nodes[other]["model"] == node["model"])
            try:
                yield name, node, self.warm_start.folder(node["model"], alike, task)
            except ValueError as error:
                raise ConfigError(str(error)) from error

    @property
    def gpus(self) -> int:
        """GPUs of an engine, where that is vLLM."""
        return int(self.config.engine.get("vllm", {}).get("tensor_parallel_size", 1))

    def start_team(self, policies: Mapping[str, Any], only: Sequence[str] | None = None) -> Team:
        """Starts the engine for ``policies``; ``only`` some of the roles play, if given."""
        c = self.config
        agents = {role: policy for role, policy in c.agents.items() if only is None or role in only}
        for note in self.notes(agents):
            say(note)
        start = time.perf_counter()
        ranks = Ranks.current()
        engine = make(c.engine)
        if dist.is_available() and dist.is_initialized():
            # vLLM must not meet the trainer's process group.
            device = next(next(iter(policies.values())).parameters()).device
            gpu = device.index if device.type == "cuda" else None
            engine = self.engine_process.place(engine, ranks, gpu=gpu, tensor_parallel_size=self.gpus)
        team = Team(
            engine=engine,
            environment=self.environment,
            agents=agents,
            policies=policies,
            max_prompt_tokens=c.max_prompt_tokens,
            workers=c.workers,
            template=dict(c.chat_template),
            ranks=ranks,
            ranks_per_engine=self.gpus,
        )
        say(f"engine: {team.engine.name}, started in {time.perf_counter() - start:.1f} s")
        return team

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """What the task has to say to whoever starts these roles.

        Raises:
            ConfigError: they cannot play it together, or nothing can run a program here.
        """
        try:
            return self.environment().notes(agents)
        except (SandboxError, ValueError) as error:
            raise ConfigError(str(error)) from error

    def datamodule(self) -> RolloutDataModule:
        """The rollout data; the engine starts when it is first needed."""
        return RolloutDataModule(
            data=self.data,
            start_team=self.start_team,
            sampler=self.sampler,
            prompts_per_iteration=self.config.prompts_per_iteration,
            batching=self.batching,
            group_filter=self.group_filter,
            seed=self.config.seed,
        )

    def trainer(self, run: RunFolder) -> L.Trainer:
        """The trainer with every callback of a run that is kept in ``run``."""
        c = self.config
        metrics = IterationMetrics()
        # A stop that is asked for while the team is being scored still counts: the stop stands behind the score.
        wanted = [run, self.advantage, metrics, Console(metrics, c.agents), self.samples, self.heldout]
        wanted += [self.role_health, self.return_to_best]  # the latter reads what was held out
        own = [make(node) for node in c.callbacks.values()]
        callbacks = [callback for callback in (*wanted, *own, GracefulStop()) if callback is not None]
        trainer: L.Trainer = make(c.trainer)(
            max_epochs=c.iterations,
            callbacks=[*callbacks, self.checkpoint],
            plugins=None if c.trainer.get("strategy") else [AnyRanksIO()],
            logger=False,  # the run's folder hangs it in
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            inference_mode=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        return trainer


def build(config: DictConfig) -> Parts:
    """Instantiates what is light, reads data and models, and checks that the parts fit each other.

    Raises:
        ConfigError: a part refuses its settings, is not there, or does not fit another.
    """
    try:
        check_trainer(config.trainer)
        parts = Parts(
            config=config,
            environment=make(config.env),
            role_health=make(config.role_health)(agents=config.agents),
            **{
                name: make(config[name])
                for name in (
                    "sampler",
                    "data",
                    "advantage",
                    "batching",
                    "loss",
                    "schedule",
                    "group_filter",
                    "warm_start",
                    "heldout",
                    "return_to_best",
                    "samples",
                    "checkpoint",
                    "engine_process",
                )
            },
        )
        _check(parts)
    except InstantiationException as error:
        raise ConfigError(str(error.__cause__ or error)) from error
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    return parts


def check_trainer(node: DictConfig) -> None:
    """Refuses what a recipe may not set of the trainer.

    Raises:
        ValueError: which setting, and what was expected.
    """
    if unknown := sorted(set(map(str, node)) - TRAINER_SETTINGS - {"_target_", "_partial_"}):
        raise ValueError(f"trainer.{unknown[0]}: not for a recipe to set, expected some of {sorted(TRAINER_SETTINGS)}")
    if node.precision not in PRECISIONS:
        raise ValueError(f"trainer.precision: got {node.precision}, expected {' or '.join(PRECISIONS)}")
    several = node.get("num_nodes", 1) != 1 or processes_here(node) != 1
    if node.get("strategy") is None and several:
        raise ValueError(
            f"trainer.devices: got {node.devices} on {node.get('num_nodes', 1)} nodes, expected one process "
            "(trainer=fsdp runs several)"
        )


def processes_here(node: DictConfig) -> int | str:
    """How many processes on this machine; ``auto`` is known to the trainer only."""
    devices: Any = node.devices
    return len(devices) if OmegaConf.is_list(devices) else devices


def _check(parts: Parts) -> None:
    config, sampler = parts.config, parts.sampler
    if sampler.temperature <= 0:
        raise ValueError(f"sampler.temperature: got {sampler.temperature}, expected more than 0 to learn from")
    if not isinstance(parts.advantage, AdvantageCallback):
        raise ValueError(f"advantage: got a {type(parts.advantage).__name__}, expected an AdvantageCallback")
    parts.advantage.check_sampler(sampler)
    if parts.batching.aggregation == "trajectory_mean" and not isinstance(sampler, ParallelSampler):
        raise ValueError("batching.aggregation=trajectory_mean got a tree, expected trajectories: use sampler=parallel")
    _check_lengths(config, sampler)
    if not any(node.get("trainable", True) for node in config.policies.values()):
        raise ValueError("policies: all have trainable=false, expected at least one that learns")
    for node in config.policies.values():
        model_folder(node.model)
    for split in get_args(Split):
        if not parts.data.split(split):
            raise ValueError(f"data got 0 samples in its {split} split, expected at least one")
    environment = parts.environment()
    check_roles(config.agents, environment)
    for name in ("max_tokens", "branches"):
        by_role = getattr(sampler, name, None)
        if isinstance(by_role, Mapping) and (unknown := sorted(set(by_role) - {*environment.roles, *config.agents})):
            raise ValueError(f"sampler.{name}: got {unknown[0]!r}, expected some of {', '.join(environment.roles)}")
    parts.notes(config.agents)
    for split in get_args(Split):  # data of another task would show only once the run is under way
        parts.environment().reset(parts.data.split(split)[0])
    if sampler.credit == "step" and not environment.step_rewards_complete:
        print(
            f"warning: {type(environment).__name__} has steps without a reward of their own, and sampler.credit=step "
            "teaches the team to avoid them; consider credit=continuation or backup (tree) or outcome (parallel)"
        )


def _check_lengths(config: DictConfig, sampler: Any) -> None:
    """Refuses prompts and responses for which the engine has no room; it would say so in the middle of a run."""
    room = OmegaConf.select(config, "engine.vllm.max_model_len")
    longest = max(sampler.sampling(agent).max_tokens for agent in config.agents)
    if room is not None and config.engine.get("use") != "transformers" and config.max_prompt_tokens + longest > room:
        raise ValueError(
            f"max_prompt_tokens: got {config.max_prompt_tokens} and {longest} of sampler.max_tokens, "
            f"expected at most engine.vllm.max_model_len={room} together"
        )
