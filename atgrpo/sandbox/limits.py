"""What one run of a program may use."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run. Start-up is not the program's: its time counts from its first line.

    Raises:
        ValueError: one of them is not above 0.
    """

    seconds: float = 5.0
    """Wall time of the whole run."""
    cpu_seconds: float = 5.0
    """CPU time of each process, rounded up to whole seconds."""
    memory_mb: int = 512
    """Address space of each process (a hard limit); memory and files of all together (looked at 20 times a second)."""
    processes: int = 32
    """Processes and threads at once."""
    file_mb: int = 8
    """All files in its folder together."""
    output_kb: int = 64
    """What is kept of stdout, of stderr, and of each value a function returns."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field.name} got {value}, expected a finite number above 0")
