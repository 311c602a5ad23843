"""From a recipe and overrides to one checked configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from atgrpo.cli.targets import check_targets
from atgrpo.paths import conf_dir, recipes_dir


class ConfigError(ValueError):
    """The configuration is wrong; the message is one line that says where and what was expected."""


@dataclass
class Run:
    """Where a run is kept: ``<root>/<recipe>/<name>``."""

    root: str = "runs"
    name: str | None = None


@dataclass
class Config:
    """What a recipe may set. Nodes with a ``_target_`` are checked against what they build."""

    seed: int = 0
    iterations: int = 1
    prompts_per_iteration: int = 1
    max_prompt_tokens: int = 1024
    workers: int = 0
    agents: dict[str, str] = MISSING
    policies: dict[str, Any] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    clip_norm: float = 1.0
    env: Any = None
    data: Any = None
    sampler: Any = None
    advantage: Any = None
    policy: Any = None
    engine: Any = None
    optimizer: Any = None
    trainer: Any = None
    logger: Any = None
    batching: Any = None
    loss: Any = None
    schedule: Any = None
    group_filter: Any = None
    heldout: Any = None
    checkpoint: Any = None
    samples: Any = None
    run: Run = field(default_factory=Run)


def find_recipe(name: str) -> Path:
    """A recipe by its path, seen from where the user stands, else a shipped one by its name."""
    for path in (Path(name), recipes_dir() / Path(name).name, recipes_dir() / f"{name}.yaml"):
        if path.is_file():
            return path.resolve()
    shipped = ", ".join(sorted(p.stem for p in recipes_dir().glob("*.yaml")))
    raise ConfigError(f"recipe {name!r} does not exist, expected a file or one of: {shipped}")


def load(recipe: Path, overrides: Sequence[str]) -> DictConfig:
    """Composes, resolves and checks a recipe.

    Raises:
        ConfigError: an unknown key, a wrong type, a missing value or file.
    """
    try:
        with initialize_config_dir(str(recipe.parent), version_base="1.3"):
            searchpath = f"hydra.searchpath=[file://{conf_dir()}]"
            composed = compose(recipe.stem, [searchpath, *map(_settable, overrides)])
        config = OmegaConf.merge(OmegaConf.structured(Config), composed)
        OmegaConf.resolve(config)
        if missing := sorted(OmegaConf.missing_keys(config)):
            raise ConfigError(f"{', '.join(missing)}: no value, set it in {recipe.name} or on the command line")
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from error
    assert isinstance(config, DictConfig)
    _spread(config)
    try:
        check_targets(OmegaConf.to_container(config))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return config


def _settable(override: str) -> str:
    """Lets ``a.b=1`` set what no yaml lists: whether it exists is for the signature of what is built to say."""
    key = override.split("=", 1)[0]
    return f"++{override}" if key[:1].isalpha() and "." in key and "@" not in key and "/" not in key else override


def _spread(config: DictConfig) -> None:
    """Writes out each policy and its optimiser: the common settings with its own on top."""
    used = list(dict.fromkeys(config.agents.values()))
    for group, common in (("policies", "policy"), ("optimizers", "optimizer")):
        if strangers := [name for name in config[group] if name not in used]:
            raise ConfigError(f"{group}.{strangers[0]}: no agent uses this policy, expected one of {', '.join(used)}")
        own = {name: OmegaConf.merge(config[common], config[group].get(name) or {}) for name in used}
        config[group] = OmegaConf.create(own)


def _one_line(error: BaseException) -> str:
    """Hydra explains over several lines and hides the cause; the first lines of both say it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")), "")
    cause = str(error.__cause__).splitlines()[0] if error.__cause__ else ""
    text = lines[0] if lines else type(error).__name__
    parts = [key, text, cause if cause != text else ""]
    return ": ".join(part for part in parts if part)
