"""Run folders: where a run is kept and how it is found again."""

from __future__ import annotations

import difflib
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from atgrpo.cli.build import CHECKPOINTS, as_yaml
from atgrpo.cli.config import ConfigError
from atgrpo.training.callbacks.checkpoint import SavedIteration, saved_iterations

CONFIG = "config.yaml"


def new_run(config: DictConfig, recipe: Path) -> Path:
    """Makes the folder of a run that starts and writes its configuration there."""
    name = config.run.name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path(config.run.root).absolute() / recipe.stem / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"run folder {folder} exists, expected a new run.name (or --resume {folder})") from None
    (folder / CONFIG).write_text(as_yaml(config))
    return folder


def find_checkpoint(where: str, config: DictConfig, recipe: Path) -> SavedIteration:
    """The newest checkpoint of a run's folder, a checkpoint's own folder, or ``last``: of the recipe's newest run.

    Raises:
        ConfigError: there is none.
    """
    if where == "last":
        runs = (Path(config.run.root).absolute() / recipe.stem).glob(f"*/{CHECKPOINTS}")
        for folder in sorted(runs, key=lambda path: path.stat().st_mtime, reverse=True):
            if saved := saved_iterations(folder):
                return saved[-1]
        raise ConfigError(f"no checkpoint of {recipe.stem} under {Path(config.run.root).absolute()}, train it first")
    folder = Path(where).absolute()
    for parent, wanted in ((folder / CHECKPOINTS, None), (folder, None), (folder.parent, folder)):
        saved = [s for s in saved_iterations(parent) if wanted in (None, s.folder)] if parent.is_dir() else []
        if saved:
            return saved[-1]
    raise ConfigError(
        f"no checkpoint in {folder}, expected a run's folder or a checkpoint's (checkpoints/iteration_...)"
    )


def run_of(checkpoint: SavedIteration) -> Path:
    """The run that wrote it."""
    return checkpoint.folder.parent.parent


def settings_of(run: Path) -> Any:
    """The configuration that a run was started with."""
    return OmegaConf.load(run / CONFIG)


def changed_settings(run: Path, config: DictConfig) -> list[str]:
    """Lines of the configuration that differ from what the run was started with."""
    now = config.copy()
    now.run.update(settings_of(run).run)
    before, after = (run / CONFIG).read_text().splitlines(), as_yaml(now).splitlines()
    return [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
