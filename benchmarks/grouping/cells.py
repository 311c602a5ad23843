"""What is compared: a cell is one training run, written as the command that anybody can run again."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import yaml

from atgrpo.paths import conf_dir

ROOT = "runs/grouping"
ENDLESS = 100_000
"""Iterations: the token budget ends a run."""
CREDITS = {"tree": ("step", "continuation", "backup"), "parallel": ("step", "return_to_go", "outcome")}
TASKS_OWN = "task"
"""As a credit: the one that the task calls its own, by sampler."""


@dataclass(frozen=True, slots=True, order=True)
class Method:
    """What is compared; ``label`` names it in configurations and reports."""

    grouping: str
    sampler: str
    credit: str

    @classmethod
    def parse(cls, label: str) -> Method:
        """The method behind a label such as ``at_grpo-tree-step``."""
        parts = label.split("-")
        if len(parts) != 3 or parts[1] not in CREDITS or parts[2] not in (TASKS_OWN, *CREDITS[parts[1]]):
            raise ValueError(f"method got {label!r}, expected GROUPING-tree|parallel-CREDIT")
        return cls(*parts)

    @property
    def label(self) -> str:
        return f"{self.grouping}-{self.sampler}-{self.credit}"

    def of_task(self, task: Task) -> Method:
        """With the task's own credit put in where it is asked for."""
        own = self.credit == TASKS_OWN
        return Method(self.grouping, self.sampler, task.credits[self.sampler]) if own else self


@dataclass(frozen=True, slots=True)
class Task:
    """A recipe with what a comparison on it needs; see ``conf/tasks.yaml``."""

    name: str
    recipe: str
    roles: tuple[str, ...]
    credits: Mapping[str, str]
    """Sampler -> the credit rule that suits the task."""
    tokens: int
    """Budget of one run: every token that is sampled, playouts included."""
    max_tokens: int
    """Longest response, Dr. GRPO's constant."""
    seconds: float
    """What a run takes here; a first guess for the estimate of time."""
    settings: tuple[str, ...] = ()
    team_only: str = ""
    """Environment without local rewards; empty: there is none."""
    alone: Mapping[str, Sequence[str]] | None = None
    """Role -> settings under which it plays without the others."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run."""

    task: Task
    method: Method
    seed: int
    policies: str = "shared"
    alpha: str = "mixed"
    branches: int = 8
    selection: str = "greedy"
    lr: float | None = None
    only: str | None = None
    """The one role that is trained, on its share of the budget."""
    problems: int = 256
    marks: int = 4
    threads: int = 1

    @property
    def arm(self) -> str:
        """The cell but for its seed and its task; defaults go without saying."""
        extras = {
            self.policies: self.policies != "shared",
            f"alpha_{self.alpha}": self.alpha != "mixed",
            f"k{self.branches}": self.branches != 8,
            f"select_{self.selection}": self.selection != "greedy",
            f"lr{self.lr}": self.lr is not None,
            f"only_{self.only}": self.only is not None,
        }
        return "-".join([self.method.label, *(name for name, shown in extras.items() if shown)])

    @property
    def name(self) -> str:
        """Names its folder, too."""
        return f"{self.task.name}-{self.arm}-seed{self.seed}"

    @property
    def folder(self) -> str:
        """Where its run is kept."""
        recipe = self.task.recipe.rpartition("/")[2].removesuffix(".yaml")
        return f"{ROOT}/{recipe}/{self.name}"

    @property
    def tokens(self) -> int:
        """Roles that are trained alone share the budget of a team."""
        return self.task.tokens if self.only is None else self.task.tokens // len(self.task.roles)

    @property
    def words(self) -> list[str]:
        """The command without its environment."""
        return ["python", "-m", "atgrpo", "fit", "--config", self.task.recipe, *self.overrides()]

    @property
    def command(self) -> str:
        """What is printed beside its result."""
        return f"OMP_NUM_THREADS={self.threads} {shlex.join(self.words)}"

    def overrides(self) -> list[str]:
        """Settings that differ from the recipe."""
        budget = "callbacks.budget"
        return [
            "checkpoint.every=100",
            f"seed={self.seed}",
            f"warm_start.seed={self.seed}",
            *self.task.settings,
            f"advantage={self.method.grouping}",
            *([f"batching.constant_length={self.task.max_tokens}"] if self.method.grouping == "dr_grpo" else []),
            *self._sampler(),
            *self._players(),
            *({"team": [f"env._target_={self.task.team_only}"], "local": ["sampler.alpha=0"]}.get(self.alpha, [])),
            *([] if self.lr is None else [f"optimizer.lr={self.lr}"]),
            f"iterations={ENDLESS}",
            # A schedule is as long as the run's iterations, of which a budget of tokens knows nothing.
            "schedule.name=constant_with_warmup",
            "schedule.warmup=0",
            f"{budget}._target_=benchmarks.grouping.budget.TokenBudget",
            f"{budget}.tokens={self.tokens}",
            f"{budget}.marks={self.marks}",
            f"{budget}.problems={self.problems}",
            "heldout=null",
            "samples=null",
            "logger=null",
            f"run.root={ROOT}",
            f"run.name={self.name}",
        ]

    def _sampler(self) -> list[str]:
        credit = f"sampler.credit={self.method.credit}"
        if self.method.sampler == "parallel":
            return ["sampler=parallel", "~sampler.branches", f"sampler.trajectories={self.branches}", credit]
        chosen = [] if self.selection == "greedy" else [f"sampler/selection={self.selection}"]
        return [f"sampler.branches={self.branches}", credit, *chosen]

    def _players(self) -> list[str]:
        if self.only is not None:
            absent = [f"~agents.{role}" for role in self.task.roles if role != self.only]
            return [*absent, f"agents.{self.only}={self.only}", *(self.task.alone or {})[self.only]]
        return [f"agents.{role}={role}" for role in self.task.roles] if self.policies == "per_role" else []


def read_tasks(definitions: Mapping[str, Any]) -> dict[str, Task]:
    """Tasks as the configuration defines them."""
    found = {}
    for name, definition in definitions.items():
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in definition.items()}
        found[name] = Task(name=name, **settings)
    return found


def estimator(grouping: str) -> Any:
    """The class behind ``advantage=grouping``.

    Raises:
        ValueError: there is none.
    """
    file = conf_dir() / "advantage" / f"{grouping}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(path.stem for path in file.parent.glob("*.yaml")))
        raise ValueError(f"grouping got {grouping!r}, expected one of {known}")
    node = yaml.safe_load(file.read_text())
    module, _, name = node.get("advantage", node)["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def fits(method: Method) -> bool:
    """Whether sampler, credit and estimator go together."""
    found = estimator(method.grouping)
    return (
        method.credit in CREDITS[method.sampler]
        and found.needs in (None, method.sampler)
        and (not found.credits or method.credit in found.credits)
    )


def methods(config: Mapping[str, Any], task: Task) -> list[Method]:
    """Those that are asked for and fit, in order, each once.

    Raises:
        ValueError: one that is named in ``arms`` does not fit.
    """
    if config["arms"] is not None:
        found = [Method.parse(label).of_task(task) for label in config["arms"]]
        if odd := [method.label for method in found if not fits(method)]:
            raise ValueError(f"arms got {odd[0]}, which its estimator refuses")
    else:
        crossed = product(config["groupings"], config["samplers"], config["credits"])
        found = [Method(*parts).of_task(task) for parts in crossed]
    return list(dict.fromkeys(method for method in found if fits(method)))


def expand(config: Mapping[str, Any], tasks: Mapping[str, Task]) -> list[Cell]:
    """All cells: everything crossed with everything, without what does not fit or says the same twice."""
    if strangers := [name for name in config["tasks"] if name not in tasks]:
        raise ValueError(f"tasks got {strangers[0]}, expected some of {', '.join(tasks)}")
    cells = [cell for name in config["tasks"] for cell in _of_task(config, tasks[name])]
    return list({cell.name: cell for cell in cells}.values())


def _of_task(config: Mapping[str, Any], task: Task) -> Iterator[Cell]:
    # Seeds go last: cells that are run at once then seldom want the same warm start, which each would make for itself.
    dimensions = [config[key] for key in ("policies", "alpha", "branches", "selection", "lr", "seeds")]
    fixed = {"problems": config["problems"], "marks": config["marks"], "threads": config["threads"]}
    for method, policies, alpha, k, selection, lr, seed in product(methods(config, task), *dimensions):
        split = policies == "per_role"
        if (split and len(task.roles) < 2) or (alpha == "team" and not task.team_only):
            continue
        rule = selection if method.sampler == "tree" else "greedy"
        cell = Cell(task, method, seed, policies, alpha, k, rule, lr, **fixed)
        yield cell
        if split and config["alone"] and task.alone:
            yield from (replace(cell, only=role) for role in task.roles)
