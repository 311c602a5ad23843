"""fit, evaluate, rollout, export."""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast, get_args

from omegaconf import DictConfig

from atgrpo.cli.build import Parts, build, make
from atgrpo.cli.config import ConfigError, find_recipe, load
from atgrpo.cli.marl import TeamParts, build_teams, check_teams, film_teams, score_teams
from atgrpo.cli.plan import plan_text
from atgrpo.cli.runs import (
    CHECKPOINTS,
    RunFolder,
    changed_settings,
    check_policies,
    find_checkpoint,
    new_run,
    run_of,
    settings_of,
)
from atgrpo.policies.packed import PackedPolicy
from atgrpo.rollout.seeds import stable_seed
from atgrpo.training.callbacks.checkpoint import SavedIteration, saved_iterations
from atgrpo.training.checkpoints import CheckpointError, read_checkpoint
from atgrpo.training.evaluation import Mode, evaluate
from atgrpo.training.report import tree_text
from atgrpo.training.say import bar, say
from atgrpo.training.team import Team


def fit(args: argparse.Namespace) -> None:
    """Trains, from the start or from a checkpoint."""
    recipe = find_recipe(args.config)
    config = load(recipe, args.overrides)
    parts = build_teams(config) if _classical(config) else build(config)
    if args.dry_run:
        print(parts.plan() if isinstance(parts, TeamParts) else plan_text(parts))
        return
    checkpoint = find_checkpoint(args.resume, config, recipe) if args.resume else None
    if checkpoint and not _goes_on(checkpoint, config):
        return
    place = run_of(checkpoint) if checkpoint else partial(new_run, config, recipe)
    run = RunFolder(place, make(config.logger))
    trainer = parts.trainer(run)
    datamodule = parts.datamodule()
    try:
        trainer.fit(parts.module(), datamodule=datamodule, ckpt_path=str(checkpoint.state) if checkpoint else None)
    except BaseException as error:
        if run.folder is not None and not isinstance(error, ConfigError | CheckpointError):  # which would come again
            saved = saved_iterations(run.folder / CHECKPOINTS)
            until = f"saved up to iteration {saved[-1].iteration}; go on with: {_again(args, run)}" if saved else ""
            say(f"stopped, {until or 'nothing saved yet'}")
        raise
    if datamodule.finished < config.iterations:
        say(f"stopped and saved after iteration {datamodule.finished}; go on with: {_again(args, run)}")
    else:
        say(f"done: {run.folder}")


def _classical(config: DictConfig) -> bool:
    """Whether a recipe is one of the side without language models."""
    return "task" in config


def _again(args: argparse.Namespace, run: RunFolder) -> str:
    command = ["python", "-m", "atgrpo", "fit", "--config", args.config, "--resume", str(run.folder), *args.overrides]
    return shlex.join(command)


def _goes_on(checkpoint: SavedIteration, config: DictConfig) -> bool:
    """Says from where and with what; False if there is nothing left to do."""
    run = run_of(checkpoint)
    say(f"going on in {run} after iteration {checkpoint.iteration}")
    if config.seed != (before := settings_of(run).seed):
        raise ConfigError(f"seed: got {config.seed}, expected the {before} that the run was started with")
    (check_teams if _classical(config) else check_policies)(run, config)
    if checkpoint.state.is_file():
        read_checkpoint(checkpoint.state)  # mapped, not loaded: what is damaged is told before anything starts
    for line in changed_settings(run, config):
        say(f"  changed since the start: {line}")
    if checkpoint.iteration >= config.iterations:
        say(f"nothing to do: all {config.iterations} iterations are done; raise iterations= to train longer")
    return checkpoint.iteration < config.iterations


def score(args: argparse.Namespace) -> None:
    """Scores a team on held-out samples."""
    if args.problems < 1:
        raise ConfigError(f"--problems: got {args.problems}, expected 1 or more")
    recipe, config = _configuration(args)
    if _classical(config):
        return score_teams(args, recipe, config)
    with _team(args, recipe, config) as (parts, team):
        samples = parts.data.split("heldout")[: args.problems]
        for mode in get_args(Mode):
            seed = stable_seed(args.seed, "heldout", mode)
            with bar(total=len(samples), desc=mode, unit="problem", leave=False) as progress:
                result, _ = evaluate(team, samples, parts.sampler, mode, seed=seed, on_done=progress.update)
            print(result)


def rollout(args: argparse.Namespace) -> None:
    """Grows one tree and prints it, or films an episode of the classical side."""
    recipe, config = _configuration(args)
    if _classical(config):
        return film_teams(args, recipe, config)
    if args.gif:
        raise ConfigError(f"--gif: got {args.config}, expected a recipe with a task: others play in text")
    with _team(args, recipe, config) as (parts, team):
        samples = parts.data.split(args.split)
        if not 0 <= args.index < len(samples):
            raise ConfigError(f"--index: got {args.index}, expected 0 to {len(samples) - 1}")
        seed = stable_seed(args.seed, "rollout")
        rollouts = team.play([samples[args.index]], parts.sampler, seed=seed)
        print(tree_text(parts.advantage.on_rollout_end(None, None, rollouts)[0]))


def export(args: argparse.Namespace) -> None:
    """Writes each policy as a Hugging Face folder."""
    target = Path(args.to)
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"--to: {target} is not empty, expected a new folder")
    recipe, config = _configuration(args)
    if _classical(config):
        raise ConfigError(f"export: got {args.config}, expected a recipe with language models; weights are checkpoints")
    policies = _policies(build(config), config, recipe, args.checkpoint)
    for name, policy in policies.items():
        aside = target / f".writing-{name}"
        policy.save(aside)
        shutil.move(aside, target / name)
        print(f"{name}: {target / name}")


def _configuration(args: argparse.Namespace) -> tuple[Path, DictConfig]:
    recipe = find_recipe(args.config)
    config = load(recipe, args.overrides)
    only = getattr(args, "agents", None) or []
    if not _classical(config) and (unknown := [agent for agent in only if agent not in config.agents]):
        raise ConfigError(f"--agents: got {unknown[0]}, expected some of {', '.join(config.agents)}")
    return recipe, config


@contextmanager
def _team(args: argparse.Namespace, recipe: Path, config: DictConfig) -> Iterator[tuple[Parts, Team]]:
    parts = build(config)
    team = parts.start_team(_policies(parts, config, recipe, args.checkpoint), getattr(args, "agents", None))
    try:
        team.push()
        yield parts, team
    finally:
        team.close()


def _policies(parts: Parts, config: DictConfig, recipe: Path, checkpoint: str | None) -> dict[str, PackedPolicy]:
    """The policies with a checkpoint's weights, or as training would start."""
    module = parts.module()
    module.configure_model()
    if checkpoint:
        saved = find_checkpoint(checkpoint, config, recipe)
        check_policies(run_of(saved), config)
        module.load_state_dict(read_checkpoint(saved.state)["state_dict"])
        print(f"weights after iteration {saved.iteration}: {saved.folder}")
    return {name: cast(PackedPolicy, policy) for name, policy in module.policies.items()}
