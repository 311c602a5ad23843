"""Run folders: where a run is kept and how it is found again."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import lightning as L
import yaml
from omegaconf import DictConfig, OmegaConf

from atgrpo.cli.config import ConfigError, as_yaml
from atgrpo.ranks import Ranks
from atgrpo.training.callbacks.checkpoint import IterationCheckpoint, SavedIteration, saved_iterations
from atgrpo.training.say import say

CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
WEIGHTS_DEPEND_ON = ("_target_", "model", "quantize", "r", "alpha", "target_modules")
"""What the trained weights of a policy are an addition to, or a part of."""


class RunFolder(L.Callback):
    """Where the run is kept: found or made once the ranks can agree on it, then given to those who write there.

    Args:
        place: The folder, or what makes a new one; called on the first rank only.
        logger: Builds the logger from ``save_dir``; None for no logger.
    """

    def __init__(self, place: Path | Callable[[], Path], logger: Callable[..., Any] | None) -> None:
        self._place = place
        self._logger = logger
        self.folder: Path | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Before any other callback, once the policies are known to work.

        Raises:
            ConfigError: the first rank could not make it; on every rank.
        """
        ranks = Ranks.current()
        found: Path | ConfigError | None = None
        if ranks.rank == 0:
            try:
                found = self._place if isinstance(self._place, Path) else self._place()
            except ConfigError as error:
                found = error
        agreed = ranks.gather(found)[0]
        if not isinstance(agreed, Path):
            raise agreed or ConfigError("the first rank found no run folder")
        self.folder = agreed
        say(f"run folder: {agreed}")
        if self._logger is not None:
            trainer.logger = self._logger(save_dir=str(agreed))
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, IterationCheckpoint):
                callback.folder = agreed / CHECKPOINTS


def new_run(config: DictConfig, recipe: Path) -> Path:
    """Makes the folder of a run that starts and writes its configuration there.

    Raises:
        ConfigError: it exists (only where the run has a name of its own), or cannot be written.
    """
    now = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    # Runs that start in the same second are told apart; a name that was asked for is taken or refused.
    names = [config.run.name] if config.run.name else [now, *(f"{now}_{i}" for i in range(2, 100))]
    for name in names:
        folder = Path(config.run.root).absolute() / recipe.stem / name
        try:
            folder.mkdir(parents=True)
            (folder / CONFIG).write_text(as_yaml(config))
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"run folder {folder} cannot be written: {error}") from None
    raise ConfigError(f"run folder {folder} exists, expected a new run.name (or --resume {folder})")


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
    try:
        return OmegaConf.load(run / CONFIG)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{run / CONFIG} cannot be read ({' '.join(str(error).split())})") from error


def check_policies(run: Path, config: DictConfig) -> None:
    """Refuses a checkpoint's weights for policies of another kind, on which they would mean something else.

    Raises:
        ConfigError: a setting in ``WEIGHTS_DEPEND_ON`` has changed since the run was started.
    """
    if not (run / CONFIG).is_file():  # a checkpoint that was moved elsewhere says nothing about its origin
        return
    before = settings_of(run).get("policies")
    if before is None:
        raise ConfigError(f"checkpoint: got robots' of the run in {run}, expected one of language models")
    for name in sorted(set(before) & set(config.policies)):
        for key in WEIGHTS_DEPEND_ON:
            got, expected = config.policies[name].get(key), before[name].get(key)
            if got != expected:
                raise ConfigError(f"policies.{name}.{key}: got {got}, expected the {expected} of the run in {run}")


def changed_settings(run: Path, config: DictConfig) -> list[str]:
    """Lines of the configuration that differ from what the run was started with."""
    now = config.copy()
    now.run.update(settings_of(run).run)
    before, after = (run / CONFIG).read_text().splitlines(), as_yaml(now).splitlines()
    return [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
