"""What the sandbox costs, beside a bare subprocess in the same run.

python -m benchmarks.sandbox

Each way runs the same one-line program with as many threads as cores. A bare subprocess protects from nothing: the
difference is the price of namespaces, limits and watching.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from atgrpo.sandbox.forms import interpreter
from atgrpo.sandbox.runner import Sandbox

PROGRAM = "print(int(input()) + 1)"


def bare() -> str:
    """The program in a fresh interpreter, nothing else."""
    command = [interpreter(), "-I", "-S", "-c", PROGRAM]
    return subprocess.run(command, input="41\n", capture_output=True, text=True, check=True).stdout


def alone(way: Callable[[], str], repeats: int) -> list[float]:
    """Seconds of each run, one after another."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        if way() != "42\n":
            raise RuntimeError("the program gave another output, expected 42")
        seconds.append(time.perf_counter() - start)
    return seconds


def per_minute(way: Callable[[], str], runs: int, threads: int) -> float:
    """Runs a minute, side by side."""
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: alone(way, 1), range(runs)))
    return 60 * runs / (time.perf_counter() - start)


def main() -> None:
    """Reads the arguments, prints one line per way."""
    parser = argparse.ArgumentParser(description="Runs per minute of the sandbox and of a bare subprocess.")
    parser.add_argument("--runs", type=int, default=200, help="programs of each way, in each round")
    parser.add_argument("--rounds", type=int, default=3, help="times that the ways take turns")
    arguments = parser.parse_args()
    sandbox, threads = Sandbox(), len(os.sched_getaffinity(0))
    ways: dict[str, Callable[[], str]] = {
        "sandbox": lambda: sandbox.run(PROGRAM, "41\n").stdout,
        "bare subprocess": bare,
    }
    print(sandbox.describe())
    singles: dict[str, list[float]] = {name: alone(way, 1)[1:] for name, way in ways.items()}  # first: warm-up
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            singles[name] += alone(way, max(1, arguments.runs // 10))
            rates[name].append(per_minute(way, arguments.runs, threads))
    for name in ways:
        single, rate = statistics.median(singles[name]), statistics.median(rates[name])
        print(f"{name}: median {1000 * single:.0f} ms alone; {rate:.0f} runs a minute with {threads} threads")


if __name__ == "__main__":
    main()
