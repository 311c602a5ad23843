"""Three algorithms x two tasks x seeds at equal frames, and the seed document's ablation.

python -m benchmarks.marl run --to results.jsonl                                    the three algorithms on both tasks
python -m benchmarks.marl run --to results.jsonl --algorithms relative_clip relative_sigmoid relative_linear_raw
python -m benchmarks.marl run --to results.jsonl --tasks box_pushing_alone --algorithms mappo     one robot alone
python -m benchmarks.marl benchmarl --to results.jsonl                 BenchMARL's, in an environment that has it
python -m benchmarks.marl report results.jsonl                         writes results.md and its figures
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from atgrpo.quiet import quiet
from benchmarks.marl.cells import ALGORITHMS, COMPARED, TASKS, run_cell
from benchmarks.marl.report import write_report
from benchmarks.marl.results import Result, append

FRAMES = 1_024_000
BENCHMARL = "pip install benchmarl==1.5.2 torchrl==0.11.1 tensordict==0.11.0, in an environment of its own"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks.marl", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    for name, algorithms in (("run", ALGORITHMS), ("benchmarl", ("mappo", "ippo"))):
        run = commands.add_parser(name)
        run.add_argument("--to", type=Path, required=True, help="results are added to this file")
        run.add_argument("--tasks", nargs="+", choices=TASKS, default=["navigation", "box_pushing"])
        chosen = list(COMPARED) if name == "run" else list(algorithms)
        run.add_argument("--algorithms", nargs="+", choices=list(algorithms), default=chosen)
        run.add_argument("--seeds", type=count, default=10)
        run.add_argument("--frames", type=count, default=FRAMES, help="of each seed")
        run.add_argument("--root", type=Path, default=Path("runs/benchmark"), help="where run folders go")
        run.add_argument("--threads", type=count, default=1)
    report = commands.add_parser("report")
    report.add_argument("results", type=Path)
    report.add_argument("--at", type=count, nargs="+", default=[200_000, 500_000, 1_000_000])
    return top


def count(text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text}, expected 1 or more")
    return int(text)


def main() -> None:
    """Runs one command; a mistake is one line."""
    try:
        _run(parser().parse_args())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


def _run(arguments: argparse.Namespace) -> None:
    if arguments.command == "report":
        print(write_report(arguments.results, arguments.at))
        return
    quiet()
    torch.set_num_threads(arguments.threads)
    append([], arguments.to)  # what cannot be written should not be trained first
    cell = run_cell if arguments.command == "run" else _benchmarl()
    for task in arguments.tasks:
        for algorithm in arguments.algorithms:
            append(cell(task, algorithm, arguments.seeds, arguments.frames, arguments.root), arguments.to)


def _benchmarl() -> Callable[..., list[Result]]:
    try:
        from benchmarks.marl.benchmarl import run_benchmarl
    except ImportError as error:
        raise ValueError(f"BenchMARL is not installed ({error}), expected: {BENCHMARL}") from error
    return run_benchmarl


if __name__ == "__main__":
    main()
