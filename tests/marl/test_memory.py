from __future__ import annotations

import subprocess
import sys

FAULTS = """
import resource, torch
from atgrpo.marl.memory import keep_freed_memory

def faults():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start

before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


def test_freed_memory_is_used_again_and_not_fetched_anew():
    """Blocks of 64 MiB are above whatever glibc keeps by itself; other C libraries may keep them anyway."""
    found = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, found.stdout.split())
    assert after < 1000, f"{before} page faults before, {after} after"
