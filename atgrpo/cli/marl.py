"""The commands for recipes of the classical side, which have a ``task``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from atgrpo.cli.build import check_trainer, make
from atgrpo.cli.config import ConfigError, as_yaml
from atgrpo.cli.runs import CONFIG, RunFolder, find_checkpoint, run_of, settings_of
from atgrpo.marl.callbacks.algorithm import Algorithm
from atgrpo.marl.callbacks.heldout import HELD_OUT, HeldOutTeams
from atgrpo.marl.datamodule import TeamDataModule
from atgrpo.marl.environments import Environments
from atgrpo.marl.module import TeamModule
from atgrpo.marl.ppo import PPOSettings
from atgrpo.marl.render import Film
from atgrpo.marl.simulator import Simulator, Starts
from atgrpo.marl.tasks import Task
from atgrpo.marl.types import Spec
from atgrpo.training.callbacks.checkpoint import IterationCheckpoint
from atgrpo.training.callbacks.stop import GracefulStop
from atgrpo.training.checkpoints import read_checkpoint

STATES = 2048
TRAINED_ON = 1
"""Seed of the states that episodes start from, the same for every team."""


@dataclass(frozen=True)
class TeamParts:
    """What a configuration builds."""

    config: DictConfig
    task: Task
    algorithm: Algorithm
    actor: Callable[..., Any]
    ppo: PPOSettings
    heldout: HeldOutTeams | None
    metrics: L.Callback
    checkpoint: IterationCheckpoint
    spec: Spec

    @property
    def seeds(self) -> list[int]:
        """Of the teams."""
        return list(range(self.config.seed, self.config.seed + self.config.seeds))

    @property
    def continuous(self) -> bool:
        """Actions are forces."""
        return is_continuous(self.actor)

    def module(self) -> TeamModule:
        """The LightningModule."""
        return TeamModule(
            seeds=self.seeds,
            spec=self.spec,
            actor=self.actor,
            view=self.algorithm.view,
            group_critic=self.algorithm.group_critic,
            ppo=self.ppo,
        )

    def datamodule(self) -> TeamDataModule:
        """The teams' environments start when they are first needed."""
        return TeamDataModule(start=self._environments, steps=self.config.steps)

    def _environments(self, device: torch.device) -> Environments:
        starts = Starts.draw(self.task, STATES, TRAINED_ON)
        copies = self.config.envs * self.config.seeds
        simulator = Simulator(self.task, copies, continuous=self.continuous, device=device)
        return Environments(simulator, starts, self.seeds)

    def trainer(self, run: RunFolder) -> L.Trainer:
        """The trainer with every callback of a run that is kept in ``run``."""
        own = [make(node) for node in self.config.callbacks.values()]
        wanted = [run, self.algorithm, self.metrics, self.heldout, *own, GracefulStop(), self.checkpoint]
        trainer: L.Trainer = make(self.config.trainer)(
            max_epochs=self.config.iterations,
            callbacks=[callback for callback in wanted if callback is not None],
            logger=False,  # the run's folder hangs it in
            reload_dataloaders_every_n_epochs=1,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            inference_mode=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        return trainer

    def plan(self) -> str:
        """The resolved configuration and what it adds up to."""
        c = self.config
        frames = c.envs * c.steps
        steps = self.ppo.epochs * -(-frames // self.ppo.minibatch)
        count = sum(p.numel() for p in self.module().parameters())
        lines = [
            as_yaml(c),
            f"one iteration: {c.envs} environments x {c.steps} steps = {frames:,} frames of a team, {steps} updates",
            f"the run: {c.iterations} iterations, {c.iterations * frames:,} frames of each of {c.seeds} teams",
            f"sizes: {self.spec}; {count:,} parameters of all teams together",
        ]
        return "\n".join(lines)


def is_continuous(actor: Any) -> bool:
    """What an actor's class says, be it inside a partial or not."""
    return bool(getattr(actor, "func", actor).continuous)


def build_teams(config: DictConfig) -> TeamParts:
    """Instantiates what is light and checks that the parts fit each other.

    Raises:
        ConfigError: a part refuses its settings, or the simulator is not installed.
    """
    names = ("task", "algorithm", "actor", "ppo", "heldout", "metrics", "checkpoint")
    try:
        check_trainer(config.trainer)
        if config.trainer.get("strategy") is not None or config.trainer.precision != "32-true":
            raise ValueError("trainer: got a strategy or mixed precision, expected one process at 32-true")
        made = {name: make(config[name]) for name in names}
        if not isinstance(made["algorithm"], Algorithm):
            raise ValueError(f"algorithm: got a {type(made['algorithm']).__name__}, expected an Algorithm")
        spec = Simulator(made["task"], 1, continuous=is_continuous(made["actor"])).spec
    except InstantiationException as error:
        raise ConfigError(str(error.__cause__ or error)) from error
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    return TeamParts(config=config, spec=spec, **made)


def check_teams(run: Path, config: DictConfig, *, goes_on: bool = True) -> None:
    """Refuses a checkpoint for teams of another kind.

    Args:
        run: That wrote the checkpoint.
        config: Of now.
        goes_on: Training goes on, whose environments and count of frames are the checkpoint's.

    Raises:
        ConfigError: a setting that networks or environments are made by has changed since the run was started.
    """
    if not (run / CONFIG).is_file():  # a checkpoint that was moved elsewhere says nothing about its origin
        return
    before = settings_of(run)
    if "task" not in before:
        raise ConfigError(f"checkpoint: got language models' of the run in {run}, expected one of robots")
    kept = ("envs", "steps") if goes_on else ()
    for key in ("task", "algorithm._target_", "actor", "ppo.critic_hidden", "seeds", *kept):
        got, expected = OmegaConf.select(config, key), OmegaConf.select(before, key)
        if got != expected:
            raise ConfigError(f"{key}: got {got}, expected the {expected} of the run in {run}")


def score_teams(args: argparse.Namespace, recipe: Path, config: DictConfig) -> None:
    """Scores every seed's team on held-out states, or only some of its robots."""
    if not 1 <= args.problems <= STATES:
        raise ConfigError(f"--problems: got {args.problems}, expected 1 to {STATES}")
    if args.seed < 0:  # the states to train on are drawn by the seed before those that are held out
        raise ConfigError(f"--seed: got {args.seed}, expected 0 or more")
    parts, module = _trained(args, recipe, config)
    names = [f"agent_{i}" for i in range(parts.spec.agents)]
    if unknown := [name for name in args.agents or [] if name not in names]:
        raise ConfigError(f"--agents: got {unknown[0]}, expected some of {', '.join(names)}")
    acting = [name in args.agents for name in names] if args.agents else None
    print(HeldOutTeams(args.problems).score(parts.task, module, seed=HELD_OUT + args.seed, acting=acting))


def film_teams(args: argparse.Namespace, recipe: Path, config: DictConfig) -> None:
    """Plays one held-out episode of the first seed's team, and draws it where that is asked for."""
    if not 0 <= args.index < STATES:
        raise ConfigError(f"--index: got {args.index}, expected 0 to {STATES - 1}")
    if args.seed:
        raise ConfigError(f"--seed: got {args.seed}, expected none: robots do what is most likely; try another --index")
    parts, module = _trained(args, recipe, config)
    from atgrpo.marl.evaluation import evaluate

    seed = HELD_OUT if args.split == "heldout" else TRAINED_ON
    starts = Starts.draw(parts.task, args.index + 1, seed)
    start = starts.take(torch.full((1,), args.index))
    teams = len(module.seeds)
    simulator = Simulator(parts.task, teams, continuous=parts.continuous)
    film = Film()
    print(evaluate(simulator, module.actor, start, teams, watch=film if args.gif else None))
    if args.gif:
        film.save(Path(args.gif))
        print(f"{len(film.frames)} pictures: {args.gif}")


def _trained(args: argparse.Namespace, recipe: Path, config: DictConfig) -> tuple[TeamParts, TeamModule]:
    parts = build_teams(config)
    module = parts.module()
    if args.checkpoint:
        saved = find_checkpoint(args.checkpoint, config, recipe)
        check_teams(run_of(saved), config, goes_on=False)
        module.load_state_dict(read_checkpoint(saved.state)["state_dict"])
        print(f"weights after iteration {saved.iteration}: {saved.folder}")
    return parts, module.eval()
