"""Three algorithms x two tasks x seeds at equal frames, and the seed document's ablation.

python -m benchmarks.marl run --to results.jsonl                                    the three algorithms on both tasks
python -m benchmarks.marl run --to results.jsonl --algorithms relative_clip relative_sigmoid relative_linear_raw
python -m benchmarks.marl run --to results.jsonl --tasks box_pushing_alone --algorithms mappo     one robot alone
python -m benchmarks.marl benchmarl --to results.jsonl       needs BenchMARL (pip install 'benchmarl[vmas]')
python -m benchmarks.marl table results.jsonl
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from benchmarks.marl.cells import ALGORITHMS, COMPARED, TASKS, append, read, run_cell
from benchmarks.marl.tables import tables

FRAMES = 1_024_000


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks.marl", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    commands = top.add_subparsers(dest="command", required=True)
    for name, algorithms in (("run", ALGORITHMS), ("benchmarl", ("mappo", "ippo"))):
        run = commands.add_parser(name)
        run.add_argument("--to", type=Path, required=True, help="results are added to this file")
        run.add_argument("--tasks", nargs="+", choices=TASKS, default=["navigation", "box_pushing"])
        chosen = list(COMPARED) if name == "run" else list(algorithms)
        run.add_argument("--algorithms", nargs="+", choices=list(algorithms), default=chosen)
        run.add_argument("--seeds", type=int, default=5)
        run.add_argument("--frames", type=int, default=FRAMES, help="of each seed")
        run.add_argument("--root", type=Path, default=Path("runs/benchmark"), help="where run folders go")
        run.add_argument("--threads", type=int, default=1)
    table = commands.add_parser("table")
    table.add_argument("results", type=Path, nargs="+")
    table.add_argument("--at", type=int, nargs="+", default=[200_000, 500_000, 1_000_000])
    return top


def main() -> None:
    """Runs one command."""
    arguments = parser().parse_args()
    if arguments.command == "table":
        print(tables(read(arguments.results), arguments.at))
        return
    torch.set_num_threads(arguments.threads)
    for task in arguments.tasks:
        for algorithm in arguments.algorithms:
            settings = (task, algorithm, arguments.seeds, arguments.frames, arguments.root)
            if arguments.command == "run":
                append(run_cell(*settings), arguments.to)
            else:
                from benchmarks.marl.benchmarl import run_benchmarl

                append(run_benchmarl(*settings), arguments.to)


if __name__ == "__main__":
    main()
