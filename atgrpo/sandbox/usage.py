"""What the processes of one run use together, read from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FILE_BYTES = 1024
"""About what the kernel keeps for a file that holds nothing."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run uses now."""

    bytes: int = 0
    processes: int = 0
    """Threads count, as for the kernel."""


def of_tree(root: int, folder: str, enough: int) -> Usage:
    """The descendants of bubblewrap's outer process, and the files in memory at ``folder`` as they see it.

    No process gets out of this tree: orphans belong to the first process of their namespace. Memory that processes
    share is counted once, but only beyond ``enough`` bytes: it is slow to tell.
    """
    pids, waiting = list[int](), list(_children(root))
    while waiting:
        pids.append(waiting.pop())
        waiting += _children(pids[-1])
    used = _sum(pids, enough)
    with contextlib.suppress(OSError, IndexError):
        files = os.statvfs(f"/proc/{pids[0]}/root{folder}")
        held = (files.f_blocks - files.f_bfree) * files.f_frsize + (files.f_files - files.f_ffree) * _FILE_BYTES
        return Usage(used.bytes + held, used.processes)
    return used


def of_group(group: int, enough: int) -> Usage:
    """The processes of one group."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return _sum([pid for pid in pids if (stat := _stat(pid)) and int(stat[2]) == group], enough)


def _sum(pids: Iterable[int], enough: int) -> Usage:
    stats = {pid: stat for pid in pids if (stat := _stat(pid))}
    total = sum(int(stat[21]) * _PAGE for stat in stats.values())
    if total > enough:
        total = sum(_share(pid, int(stat[21]) * _PAGE) for pid, stat in stats.items())
    return Usage(total, sum(int(stat[17]) for stat in stats.values()))


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/<pid>/stat`` from the third on (state, parent, group, ...); empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The second one, a name in brackets, may hold anything.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _children(pid: int) -> Iterable[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    return children


def _share(pid: int, resident: int) -> int:
    """Its proportional share; all that is resident where that cannot be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return resident
