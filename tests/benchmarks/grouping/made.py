"""Cells and results made up for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.grouping.cells import Cell, Method, Task
from benchmarks.grouping.results import Result

TASK = Task(
    name="letters",
    recipe="recipes/debug.yaml",
    roles=("tool", "reasoner"),
    credits={"tree": "step", "parallel": "outcome"},
    tokens=1000,
    max_tokens=8,
    seconds=30.0,
    settings=("warm_start.steps=3",),
    team_only="some.TeamOnly",
    alone={"tool": ("env.decider=tool",), "reasoner": ()},
)
SETTINGS: dict[str, Any] = {
    "tasks": ["letters"],
    "seeds": [0, 1],
    "arms": None,
    "groupings": ["at_grpo", "grpo"],
    "samplers": ["tree", "parallel"],
    "credits": ["task"],
    "policies": ["shared"],
    "alpha": ["mixed"],
    "branches": [8],
    "selection": ["greedy"],
    "lr": [None],
    "alone": False,
    "problems": 16,
    "marks": 2,
    "threads": 1,
}


def make_cell(label: str = "at_grpo-tree-step", seed: int = 0, **more: Any) -> Cell:
    return Cell(more.pop("task", TASK), Method.parse(label), seed, **more)


def make_result(cell: Cell, *sampled: float, **more: Any) -> Result:
    """Scores at even marks; the last one is a tenth over the budget."""
    step = cell.tokens / max(1, len(sampled) - 1)
    curve = [
        {
            "tokens": round(i * step * (1.1 if i == len(sampled) - 1 else 1)),
            "iterations": 2 * i,
            "seconds": 3.0 * i,
            "sampled": value,
            "greedy": value / 2,
            "metrics": {"group/zero_variance": 0.25},
        }
        for i, value in enumerate(sampled)
    ]
    result = Result(
        cell=cell.name,
        kind="run",
        task=cell.task.name,
        arm=cell.arm,
        seed=cell.seed,
        tokens=cell.tokens,
        command=cell.command,
        version={"atgrpo": "0"},
        config={"seed": cell.seed},
        wall=60.0,
        curve=curve,
    )
    return replace(result, **more)
