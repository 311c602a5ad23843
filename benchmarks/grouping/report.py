"""A Markdown report and its figures, from raw results alone: the same bytes every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grouping.cells import Method, Task
from benchmarks.grouping.figures import plot_curves
from benchmarks.grouping.results import Result, arms_of, by_seed, read, readable, reported_of
from benchmarks.markdown import markdown
from benchmarks.stats import FEWEST_SEEDS, Contrast, contrast, iqm, iqm_interval

TOGETHER = "all together"
METHOD = """\
Every number is made of the lines of `{raw}` by `python -m benchmarks.grouping action=report preset={name}`.
Success is that of held-out episodes, one response per step and nothing selected by reward: sampled at the temperature
of training (the measure), greedy beside it. A run ends after the iteration in which its budget of tokens is used up,
playouts included, so it goes over by less than an iteration; all numbers are interpolated linearly to exactly the
budget. Brackets are 95% intervals over seeds: interquartile mean (IQM) by a stratified bootstrap. All methods of a seed
share its data, its held-out samples and the model that they start from, so contrasts are differences seed by seed; all
together are those of every task on which the two differ. A claim is made where Student's interval of the mean
difference, widened for all contrasts of the report (Bonferroni), leaves out 0.
"""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two arms and their scores by task and seed."""

    task: str
    first: str
    second: str
    x: Mapping[tuple[str, int], float]
    y: Mapping[tuple[str, int], float]


def write_report(file: Path, contrasts: Sequence[Sequence[str]], tasks: Mapping[str, Task]) -> Path:
    """Writes ``<name>.md`` and a figure for each task beside the results.

    Raises:
        ValueError: there are no results.
    """
    results = sorted(read(file), key=lambda r: (r.kind, r.cell))
    if not results:
        raise ValueError(f"no results in {file}, expected some: run the cells first")
    parts = [f"# Comparison: {file.stem}\n", METHOD.format(raw=file.name, name=file.stem), _origin(results)]
    shown = [name for name in tasks if arms_of(results, name)]
    for task in shown:
        figure = file.with_name(f"{file.stem}_{task}.png")
        plot_curves(results, task, figure)
        parts += [f"## {task}\n", _table(results, task), f"![Learning curves]({figure.name})\n"]
    parts += [
        _across(results, contrasts, tasks, shown),
        _contrasts(results, contrasts, tasks, shown),
        _played(results),
        _cells(results),
    ]
    target = file.with_suffix(".md")
    target.write_text("\n".join(part for part in parts if part))
    return target


def _origin(results: Sequence[Result]) -> str:
    found = sorted({", ".join(f"{k} {v}" for k, v in sorted(r.version.items())) for r in results})
    return "Made with " + "; ".join(found) + ".\n"


def _finals(results: Sequence[Result], task: str, arm: str, mode: str = "sampled") -> dict[int, float]:
    return {seed: r.at(r.tokens, mode) for seed, r in by_seed(results, task, arm).items()}


def _table(results: Sequence[Result], task: str) -> str:
    rows, reported = [], reported_of(results, task)
    for arm in arms_of(results, task):
        runs = list(by_seed(results, task, arm).values())
        sampled = list(_finals(results, task, arm).values())
        greedy = list(_finals(results, task, arm, "greedy").values())
        area = [float(np.mean([r.at(t) for t in np.linspace(0, r.tokens, 101)])) for r in runs]
        rows.append(
            (
                -float(iqm(sampled)),
                [
                    arm,
                    iqm_interval([sampled]),
                    iqm_interval([greedy]),
                    f"{iqm([r.at(r.tokens / 2) for r in runs]):.3f}",
                    f"{iqm(area):.3f}",
                    f"{np.mean([r.curve[0]['sampled'] for r in runs]):.3f}",
                    f"{np.mean([r.curve[-1]['iterations'] for r in runs]):.0f}",
                    f"{np.mean([r.curve[-1]['seconds'] for r in runs]):.0f}",
                    _mean_metric(runs, "group/zero_variance"),
                    _mean_metric(runs, "group/mixed_prompts"),
                    *(_mean_metric(runs, name) for name in reported),
                    f"{len(runs)}" + ("" if len(runs) >= FEWEST_SEEDS else " (too few)"),
                ],
            )
        )
    head = ["arm", "sampled", "greedy", "at half of it", "mean over the curve", "at the start", "iterations", "seconds"]
    budget = ", ".join(sorted({str(r.tokens) for r in results if r.task == task and "-only_" not in r.arm}))
    table = markdown(
        [*head, "groups without variance", "groups of mixed prompts", *map(readable, reported), "seeds"],
        [row for _, row in sorted(rows, key=lambda r: (r[0], r[1][0]))],
    )
    return f"At {budget} tokens, best first. The last metrics are means over the last part of training.\n\n{table}"


def _mean_metric(runs: Sequence[Result], name: str) -> str:
    known = [value for run in runs if (value := run.metric(name)) is not None]
    return f"{np.mean(known):.2f}" if known else "?"


def _across(
    results: Sequence[Result], contrasts: Sequence[Sequence[str]], tasks: Mapping[str, Task], shown: Sequence[str]
) -> str:
    """Arms of the contrasts that were run on all tasks."""
    rows = []
    for label in dict.fromkeys(label for pair in contrasts for label in pair):
        arms = {task: resolved(label, tasks[task]) for task in shown}
        if len(shown) > 1 and all(arm in arms_of(results, task) for task, arm in arms.items()):
            scores = [list(_finals(results, task, arm).values()) for task, arm in arms.items()]
            rows.append([label, iqm_interval(scores)])
    text = "IQM over tasks and seeds; `task` stands for the credit that suits the task."
    return f"## All tasks together\n\n{text}\n\n{markdown(['arm', 'sampled'], rows)}" if rows else ""


def _contrasts(
    results: Sequence[Result], contrasts: Sequence[Sequence[str]], tasks: Mapping[str, Task], shown: Sequence[str]
) -> str:
    asked: list[_Pair] = []
    for first, second in contrasts:
        present = [p for task in shown if (p := _pair(results, tasks[task], first, second)) is not None]
        asked += present
        if len(present) > 1:
            x = {key: value for pair in present for key, value in pair.x.items()}
            y = {key: value for pair in present for key, value in pair.y.items()}
            asked.append(_Pair(TOGETHER, first, second, x, y))
    # A task's own credit may make two of them one.
    asked = list({(pair.task, pair.first, pair.second): pair for pair in asked}.values())
    order = [*shown, TOGETHER]
    rows = []
    for pair in sorted(asked, key=lambda pair: order.index(pair.task)):
        found = contrast(pair.x, pair.y, len(asked))
        if found is not None:
            rows.append([pair.task, pair.first, pair.second, *_columns(found)])
    if not rows:
        return ""
    head = ["task", "first", "second", "IQM difference", "P(first better)", "mean, all at once", "pairs", "claim"]
    return f"## Contrasts\n\n{len(asked)} contrasts, sampled success at the budget.\n\n{markdown(head, rows)}"


def _pair(results: Sequence[Result], task: Task, first: str, second: str) -> _Pair | None:
    """Two arms on one task; None where they are the same there, or were not both run."""
    labels = resolved(first, task), resolved(second, task)
    if labels[0] == labels[1] or not set(arms_of(results, task.name)).issuperset(labels):
        return None
    x, y = ({(task.name, s): v for s, v in _finals(results, task.name, label).items()} for label in labels)
    return _Pair(task.name, *labels, x, y)


def _columns(found: Contrast) -> list[Any]:
    enough = found.seeds >= FEWEST_SEEDS
    claim = f"first is {found.claim}" if found.claim != "no claim" else found.claim
    return [found.difference, found.improvement, found.simultaneous, found.seeds, claim if enough else "too few seeds"]


def resolved(label: str, task: Task) -> str:
    """An arm's label with the task's own credit put in; what follows the method stays."""
    head, extras = label.split("-")[:3], label.split("-")[3:]
    return "-".join([Method.parse("-".join(head)).of_task(task).label, *extras])


def _played(results: Sequence[Result]) -> str:
    """Swapped policies, and policies that were trained alone, beside the team that was trained together."""
    rows = []
    for task, arm, kind in sorted({(r.task, r.arm, r.kind) for r in results if r.kind != "run"}):
        team, other = _finals(results, task, arm), by_seed(results, task, arm, kind)
        scores = [r.curve[-1]["sampled"] for r in other.values()]
        trained = [team[seed] for seed in other if seed in team]
        rows.append([task, arm, kind, iqm_interval([trained]), iqm_interval([scores]), len(scores)])
    head = ["task", "arm", "how", "trained as a team", "played so", "seeds"]
    text = "swap: in each other's roles; alone: each role was trained without the others on its share of the budget."
    return f"## Roles\n\n{text}\n\n{markdown(head, rows)}" if rows else ""


def _cells(results: Sequence[Result]) -> str:
    blocks = []
    for r in results:
        kind = "" if r.kind == "run" else f" ({r.kind})"
        score = f"sampled {r.at(r.tokens):.3f}, greedy {r.at(r.tokens, 'greedy'):.3f}"
        blocks.append(f"{r.cell}{kind}: {score}\n\n```\n{r.command}\n```\n")
    return "## Cells\n\nEach with the command that runs it again, from the root of a checkout.\n\n" + "\n".join(blocks)
