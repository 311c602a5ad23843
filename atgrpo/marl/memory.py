"""Memory of minibatches: asked for and freed again thousands of times a minute."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST = 1 << 30


def keep_freed_memory() -> None:
    """Lets this process keep what it frees.

    By default glibc gives blocks of some MiB back to the kernel each time and gets them anew page by page, which takes
    a sixth of the training time of eight teams on a CPU. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST)
        mallopt(M_TRIM_THRESHOLD, LARGEST)
