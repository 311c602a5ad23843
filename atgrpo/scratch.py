"""Temporary folders that do not outlive their process for long, however it ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PREFIX = ".atgrpo-scratch-"


class ScratchFolder:
    """A new folder that is locked while its process lives, and removed with this object or at the end of ``with``.

    What killed processes left behind is known by its open lock, in whatever container they ran, and is removed when
    another folder is made.

    Args:
        kind: Part of its name.
        place: Where it is made; the system's folder for temporary files if None.

    Raises:
        OSError: it cannot be made there.
    """

    def __init__(self, kind: str, place: Path | None = None) -> None:
        remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-{os.getpid()}-", dir=place))
        lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Takes it away; a process that has a file of it open can still read that."""
        self._finalizer()


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def remove_leftovers() -> None:
    """Removes the folders whose process is dead."""
    for folder in (folder for place in places() for folder in place.glob(f"{PREFIX}*")):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except OSError:  # another user's, or just taken away
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner may be about to lock an empty one.
            if any(folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # its owner lives
        finally:
            os.close(lock)


def places() -> list[Path]:
    """Where such folders may stand, the best place first."""
    return [place for place in (SHARED_MEMORY, Path(tempfile.gettempdir())) if place.is_dir()]
