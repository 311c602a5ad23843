"""A report in Markdown and its figures, from raw results alone: the same bytes every time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.markdown import markdown
from benchmarks.marl.cells import COMPARED
from benchmarks.marl.claims import CLAIMS, findings
from benchmarks.marl.figures import plot_curves
from benchmarks.marl.results import Arm, Run, curves, read
from benchmarks.stats import FEWEST_SEEDS, contrast, iqm_interval

SHOWN = ("return", "completion", "coverage", "collisions", "box_distance")
BASELINE = "mappo"
DRAWN = (*COMPARED, "ippo")
"""Curves of other forms of f would hide them: some fall to -40."""
LEARNING, AT_THE_END = "return, mean over the curve", "completion at the end"
METHOD = """\
Every number is made of the lines of `{raw}` by `python -m benchmarks.marl report {raw}`. Scores are those of held-out
states (128 episodes of a seed, the most likely actions), against environment steps of one team, interpolated linearly
to exactly the number of frames. Brackets are 95% intervals over seeds: interquartile mean by a stratified bootstrap.
Algorithms of a seed start from the same actor, states and draws, so differences are made seed by seed. An interval that
holds for all rows of its table at once is Student's (Fisher's for deviations), widened by Bonferroni; only it decides.
"""


def write_report(file: Path, at: Sequence[int]) -> Path:
    """Writes ``<name>.md`` and a figure for each task beside the results.

    Raises:
        ValueError: there are no results, or a line that is none.
    """
    runs = curves(read(file))
    if not runs:
        raise ValueError(f"no results in {file}, expected some: run the cells first")
    parts = [f"# Classical side: {file.stem}\n", METHOD.format(raw=file.name)]
    for task in dict.fromkeys(arm.task for arm in runs):
        of_task = {arm: own for arm, own in runs.items() if arm.task == task}
        figure = file.with_name(f"{file.stem}_{task}.png")
        drawn = {arm: own for arm, own in of_task.items() if arm.algorithm in DRAWN} or of_task
        plot_curves(drawn, [name for name in SHOWN if _known(of_task, name)], figure)
        parts.append(f"## {task}\n")
        parts += [_scores(of_task, frames) for frames in _reached(of_task, at)]
        parts.append(f"![Learning curves]({figure.name})\n")
    parts += [_claims(runs), _against_baseline(runs), _speed(runs)]
    target = file.with_suffix(".md")
    target.write_text("\n".join(part for part in parts if part))
    return target


def _known(runs: Mapping[Arm, Sequence[Run]], metric: str) -> bool:
    return all(metric in score for own in runs.values() for run in own for score in run.curve.values())


def _end(own: Sequence[Run]) -> int:
    return min(max(run.curve) for run in own)


def _reached(runs: Mapping[Arm, Sequence[Run]], at: Sequence[int]) -> list[int]:
    """Those of ``at`` that some arm has reached; where none has, the end of the shortest."""
    ends = [_end(own) for own in runs.values()]
    return [frames for frames in at if frames <= max(ends)] or [min(ends)]


def _scores(runs: Mapping[Arm, Sequence[Run]], frames: int) -> str:
    reached = {arm: own for arm, own in runs.items() if _end(own) >= frames}
    names = [name for name in SHOWN if _known(reached, name)]
    rows = []
    for arm, own in reached.items():
        values = {name: [run.at(name, frames) for run in own] for name in names}
        deviation = f"{np.std(values['return'], ddof=1):.3f}" if len(own) > 1 else "?"
        few = "" if len(own) >= FEWEST_SEEDS else " (few)"
        rows.append([arm, *(iqm_interval([values[name]]) for name in names), deviation, f"{len(own)}{few}"])
    table = markdown(["algorithm", *names, "deviation of the return", "seeds"], rows)
    return f"After {frames:,} frames of each team:\n\n{table}"


def _claims(runs: Mapping[Arm, Sequence[Run]]) -> str:
    found = findings(runs)
    rows = []
    for f in found:
        c = f.claim
        what = f"{c.metric}, deviation" if c.spread else c.metric
        where = f"{c.task}, {c.frames:,}"
        change = f"x {f.change}" if c.spread else f"{f.change.value:+.3f} [{f.change.low:.3f}, {f.change.high:.3f}]"
        values = [f"{f.ours:.3f}", f"{f.baseline:.3f}"]
        rows.append([c.says, where, what, c.baseline, *values, change, f.seeds, f.verdict])
    if not rows:
        return ""
    head = ["said of relative weighting", "task, frames", "metric", "against", "relative", "baseline"]
    text = f"{len(found)} of {len(CLAIMS)} claims; means over seeds. `w = 1` is MAPPO to the last bit."
    table = markdown([*head, "change, all at once", "seeds", "verdict"], rows)
    return f"## What the seed document says\n\n{text}\n\n{table}"


def _against_baseline(runs: Mapping[Arm, Sequence[Run]]) -> str:
    """Every arm of ours against MAPPO: how fast and good over all, and what is left at the end."""
    pairs = [
        (arm, own, base, what)
        for arm, own in runs.items()
        if arm.system == "atgrpo" and arm.algorithm != BASELINE
        for base in [runs.get(Arm(arm.system, arm.task, BASELINE), [])]
        if len({run.seed for run in own} & {run.seed for run in base}) > 1
        for what in (LEARNING, AT_THE_END)
    ]
    rows = []
    for arm, own, base, what in pairs:
        frames = min(_end(own), _end(base))
        found = contrast(_values(own, what, frames), _values(base, what, frames), len(pairs))
        assert found is not None
        claim = found.claim if found.seeds >= FEWEST_SEEDS else "too few seeds"
        rows.append([arm.task, arm, what, found.difference, found.improvement, found.simultaneous, found.seeds, claim])
    if not rows:
        return ""
    head = ["task", "algorithm", "measure", "IQM difference", "P(better)", "mean, all at once", "seeds", "claim"]
    return f"## Against {BASELINE}\n\n{len(rows)} contrasts.\n\n{markdown(head, rows)}"


def _values(own: Sequence[Run], what: str, frames: int) -> dict[int, float]:
    if what == LEARNING:
        return {run.seed: run.mean("return", frames) for run in own}
    return {run.seed: run.at("completion", frames) for run in own}


def _speed(runs: Mapping[Arm, Sequence[Run]]) -> str:
    """Frames per second beside those of another system; seeds with the very same rate were trained together."""
    if len({arm.system for arm in runs}) == 1:
        return ""  # times of one system alone say more of the machine than of the system
    rows = []
    for arm, own in runs.items():
        together: dict[float, int] = defaultdict(int)
        for run in own:
            together[run.frames_per_second] += 1
        size, rate = max(together.values()), float(np.mean(list(together)))
        slower = [np.mean([r.frames_per_second for r in other]) for a, other in runs.items() if _twin(a, arm)]
        times = f"{rate / slower[0]:.1f}" if slower else ""
        rows.append([arm.task, arm, len(own), size, f"{rate:,.0f}", times])
    head = ["task", "algorithm", "seeds", "trained together", "frames/s", "times BenchMARL's"]
    text = "Collecting and learning, without scores; all seeds of a process added up."
    return f"## Speed\n\n{text}\n\n{markdown(head, rows)}"


def _twin(other: Arm, arm: Arm) -> bool:
    """The same task and algorithm in the other system."""
    twins = {"mappo": "mappo", "dec_ppo": "ippo"}
    same = (arm.system, other.system, other.task) == ("atgrpo", "benchmarl", arm.task)
    return same and other.algorithm == twins.get(arm.algorithm)
