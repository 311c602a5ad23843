"""Memory of each process of a run, with one process and with several: peaks of the proportional set size (PSS).

PSS counts what processes share (libraries, weight files in shared memory) once in total, so the lines of a run add up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

LOOK_S = 0.5


def children(pid: int) -> list[int]:
    """The process and all below it; what has ended in the meantime is left out."""
    found = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += children(int(child))
    except OSError:
        pass
    return found


def pss_mib(pid: int) -> float | None:
    """Its share of physical memory in MiB; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def kind(pid: int) -> str | None:
    """What the process is in a run, by its command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return None
    if "process_child" in command:
        return "engine"
    return "trainer" if "atgrpo" in command and "fit" in command.split("\0") else None


def peaks(command: list[str]) -> dict[tuple[str, int], float]:
    """Runs the command; (kind, pid) -> its peak in MiB."""
    highest: dict[tuple[str, int], float] = defaultdict(float)
    run = subprocess.Popen(command)
    while run.poll() is None:
        for pid in children(run.pid):
            what, used = kind(pid), pss_mib(pid)
            if what and used:
                highest[what, pid] = max(highest[what, pid], used)
        time.sleep(LOOK_S)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {run.returncode}")
    return highest


def main() -> None:
    reader = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    reader.add_argument("--config", default="recipes/math.yaml", help="a recipe (default recipes/math.yaml)")
    reader.add_argument("--devices", type=int, nargs="+", default=[1, 2], help="numbers of processes (default 1 2)")
    reader.add_argument("settings", nargs="*", metavar="key=value")
    args = reader.parse_args()
    print("| processes | which | peak MiB |\n|---|---|---|", flush=True)
    for devices in args.devices:
        several = ["trainer=fsdp", f"trainer.devices={devices}"] if devices > 1 else []
        fit = [sys.executable, "-m", "atgrpo", "fit", "--config", args.config]
        found = peaks([*fit, *several, *args.settings])
        for (what, _), mib in sorted(found.items()):
            print(f"| {devices} | {what} | {mib:.0f} |", flush=True)


if __name__ == "__main__":
    main()
