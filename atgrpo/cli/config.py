"""From a recipe and overrides to one checked configuration."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from atgrpo.cli.targets import check_targets
from atgrpo.paths import conf_dir, recipes_dir

MAY_BE_OFF = ("heldout", "logger", "return_to_best", "samples")
"""Nodes that may be null: then there is none."""


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
    chat_template: dict[str, Any] = field(default_factory=dict)
    workers: int = 0
    agents: dict[str, str] = MISSING
    clip_norm: float = 1.0
    env: Any = None
    data: Any = None
    sampler: Any = None
    advantage: Any = None
    policy: Any = None
    policies: dict[str, Any] = field(default_factory=dict)
    warm_start: Any = None
    engine: Any = None
    engine_process: Any = None
    optimizer: Any = None
    optimizers: dict[str, Any] = field(default_factory=dict)
    trainer: Any = None
    logger: Any = None
    batching: Any = None
    loss: Any = None
    schedule: Any = None
    group_filter: Any = None
    heldout: Any = None
    role_health: Any = None
    return_to_best: Any = None
    checkpoint: Any = None
    samples: Any = None
    callbacks: dict[str, Any] = field(default_factory=dict)
    run: Run = field(default_factory=Run)


@dataclass
class TeamConfig:
    """What a recipe of the classical side may set: one that has a ``task``."""

    seed: int = 0
    seeds: int = 1
    envs: int = 1
    steps: int = 1
    iterations: int = 1
    task: Any = None
    algorithm: Any = None
    actor: Any = None
    ppo: Any = None
    trainer: Any = None
    logger: Any = None
    heldout: Any = None
    metrics: Any = None
    checkpoint: Any = None
    callbacks: dict[str, Any] = field(default_factory=dict)
    run: Run = field(default_factory=Run)


def find_recipe(name: str) -> Path:
    """A recipe by its path, seen from where the user stands, else a shipped one by its name or as ``recipes/name``."""
    path = Path(name)
    # Any other folder is the user's own: a mistyped path must not start a shipped recipe of the same name.
    shipped_names = (path.name, f"{path.name}.yaml") if str(path.parent) in (".", "recipes") else ()
    for candidate in (path, *(recipes_dir() / shipped for shipped in shipped_names)):
        if candidate.is_file():
            if candidate.suffix != ".yaml":  # hydra adds the ending itself and would look for another file
                raise ConfigError(f"recipe: got {name}, expected a file that ends in .yaml")
            return candidate.resolve()
    shipped = ", ".join(sorted(p.stem for p in recipes_dir().glob("*.yaml")))
    raise ConfigError(f"recipe {name!r} does not exist, expected a file or one of: {shipped}")


def load(recipe: Path, overrides: Sequence[str]) -> DictConfig:
    """Composes, resolves and checks a recipe.

    Raises:
        ConfigError: an unknown key, a wrong type, a missing value or file.
    """
    if (beside := str(recipe.parent)) not in sys.path:
        sys.path.append(beside)  # a recipe may name modules that lie beside it
    # Hydra refuses null where it looks for the name of a group's file.
    off = {f"{key}=null": key for key in MAY_BE_OFF if f"{key}=null" in overrides}
    try:
        with initialize_config_dir(str(recipe.parent), version_base="1.3"):
            shipped = str(conf_dir()).replace("'", r"\'")
            team, rest = _whole_team(overrides)
            settings = [_settable(override) for override in rest if override not in off]
            composed = compose(recipe.stem, [f"hydra.searchpath=['file://{shipped}']", *settings])
            if team is not None:
                OmegaConf.update(composed, "agents", team, merge=False, force_add=True)
        _check_text(composed)
        schema = TeamConfig if "task" in composed else Config
        config = OmegaConf.merge(OmegaConf.structured(schema), composed, dict.fromkeys(off.values()))
        OmegaConf.resolve(config)
    except yaml.YAMLError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(_one_line(error)) from error
    assert isinstance(config, DictConfig)
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise ConfigError(f"{', '.join(missing)}: no value, set it in {recipe.name} or on the command line")
    if schema is TeamConfig:
        _at_least(config, seed=0, seeds=1, envs=1, steps=1, iterations=1)
        _check_nodes(config, TeamConfig)
    else:
        _check_ranges(config)
        _check_nodes(config, Config)
        _spread(config)
    try:
        check_targets(OmegaConf.to_container(config))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return config


def _whole_team(overrides: Sequence[str]) -> tuple[dict[str, str] | None, list[str]]:
    """(the team, all other overrides), where ``agents={...}`` names it whole: Hydra would add it to the recipe's."""
    if not any(override.startswith("agents={") for override in overrides):
        return None, list(overrides)
    own = [override for override in overrides if override.lstrip("~+").startswith(("agents=", "agents."))]
    team: dict[str, str] = {}
    for override in OverridesParser.create().parse_overrides(own):
        role = override.key_or_group.removeprefix("agents").removeprefix(".")
        value: Any = override.value()
        if not role:
            team = dict(value)
        elif not override.is_delete():
            team[role] = value
        elif team.pop(role, None) is None:
            raise ConfigError(f"agents: got ~agents.{role}, expected one of {', '.join(team)}")
    return team, [override for override in overrides if override not in own]


def _settable(override: str) -> str:
    """Lets ``a.b=1`` set what no yaml lists: whether it exists is for the signature of what is built to say."""
    key, _, value = override.partition("=")
    if key in ("run.name", "run.root") and value != "null" and value[:1] not in ("'", '"'):
        text = value.replace("'", r"\'")
        return f"++{key}='{text}'"  # a run called 123E456 is no number
    own = "." in key or value.startswith("{")
    return f"++{override}" if key[:1].isalpha() and own and "@" not in key and "/" not in key else override


def _check_text(composed: DictConfig) -> None:
    """Refuses a name that yaml has read as something else: 123E456 would become inf, 007 and 7 one policy, on True."""
    named = {key: OmegaConf.select(composed, key) for key in ("run.name", "run.root")}
    agents = OmegaConf.select(composed, "agents")
    if OmegaConf.is_dict(agents):
        named |= {f"agents.{role}": policy for role, policy in agents.items_ex(resolve=False)}
        named |= {f"the role {role} of agents": role for role in agents}
    for key, value in named.items():
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{key}: got the {type(value).__name__} {value}, expected text: put it in quotes")


def _check_ranges(config: DictConfig) -> None:
    _at_least(config, iterations=1, prompts_per_iteration=1, max_prompt_tokens=1, workers=0)
    if not config.clip_norm > 0:
        raise ConfigError(f"clip_norm: got {config.clip_norm}, expected more than 0")
    if not config.agents:
        raise ConfigError("agents: got none, expected role: policy for each role that plays")


def _at_least(config: DictConfig, **bounds: int) -> None:
    for key, least in bounds.items():
        if config[key] < least:
            raise ConfigError(f"{key}: got {config[key]}, expected {least} or more")


def _check_nodes(config: DictConfig, schema: type) -> None:
    """Refuses a name where the node itself belongs: ``sampler: parallel`` in a recipe's body chooses no group."""
    for key in (f.name for f in fields(schema) if f.type == "Any"):
        node = config[key]
        if (isinstance(node, DictConfig) and "_target_" in node) or (node is None and key in MAY_BE_OFF):
            continue
        hint = ""
        if (conf_dir() / key).is_dir():
            name = node if isinstance(node, str) else "NAME"
            base = "config_marl" if schema is TeamConfig else "config"
            choose = f"defaults: [{base}, {{override {key}: {name}}}, _self_]"
            hint = f"; choose a group with {choose} or {key}={name} on the command line"
        if isinstance(node, DictConfig):
            raise ConfigError(f"{key}: got no _target_, expected a mapping with one{hint}")
        raise ConfigError(f"{key}: got {node!r}, expected a mapping{hint}")


def _spread(config: DictConfig) -> None:
    """Writes out each policy and its optimiser: the common settings with its own on top."""
    used = list(dict.fromkeys(config.agents.values()))
    for group, common in (("policies", "policy"), ("optimizers", "optimizer")):
        if strangers := [name for name in config[group] if name not in used]:
            raise ConfigError(f"{group}.{strangers[0]}: no agent uses this policy, expected one of {', '.join(used)}")
        for name, node in config[group].items():
            if not isinstance(node, DictConfig | None):
                raise ConfigError(f"{group}.{name}: got {node!r}, expected a mapping of settings that differ")
        # As a plain mapping: a node of the composed configuration refuses keys that it does not have yet.
        base = OmegaConf.create(OmegaConf.to_container(config[common]))
        own = {name: OmegaConf.merge(base, config[group].get(name) or {}) for name in used}
        config[group] = OmegaConf.create(own)


def _one_line(error: BaseException) -> str:
    """Hydra explains over several lines and hides the cause; the first lines of both say it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    key = next((line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")), "")
    cause = str(error.__cause__).splitlines()[0] if error.__cause__ else ""
    text = lines[0] if lines else type(error).__name__
    override = str(getattr(error, "override", None) or "")
    parts = [override, key, text, cause if cause != text else ""]
    options = getattr(error, "options", None)  # the names in a group of which another was asked for
    known = f", expected one of {', '.join(sorted(options))}" if options else ""
    return ": ".join(part for part in parts if part) + known


def as_yaml(config: DictConfig) -> str:
    """The resolved configuration."""
    return OmegaConf.to_yaml(config, resolve=True)
