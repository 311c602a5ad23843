"""One process tree from start to end: bounded reading, limits watched from outside, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from typing import Literal

from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.usage import Usage

Stopped = Literal["time", "memory", "output"]
READY = b"ready\n"
MOST_OUTPUT = 32 << 20
"""Bytes of one stream that are read, and mostly thrown away, before the run is stopped."""
_START_SECONDS = 30.0
_END_SECONDS = 2.0
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class Stream:
    """What came through one pipe: counted in full, kept up to a size."""

    fd: int
    keep: int
    data: bytearray = field(default_factory=bytearray)
    total: int = 0
    open: bool = True

    def read(self) -> None:
        """Takes one piece; the pipe has something or has ended."""
        piece = os.read(self.fd, 1 << 16)
        self.open = bool(piece)
        self.total += len(piece)
        self.data += piece[: max(0, self.keep - len(self.data))]


@dataclass(slots=True)
class Watch:
    """Follows one process tree. ``look`` measures it; ``processes`` is the cap where the kernel does not hold it."""

    process: subprocess.Popen[bytes]
    out: Stream
    err: Stream
    status: Stream
    limits: Limits
    look: Callable[[int], Usage]
    processes: int | None
    started: float | None = None
    ended: float | None = None
    stopped: Stopped | None = None
    killed: bool = False

    def follow(self) -> None:
        """Returns once the tree has ended and all its output is read."""
        born = next_look = time.monotonic()
        poll = select.poll()
        streams = {stream.fd: stream for stream in (self.out, self.err, self.status)}
        for fd in streams:
            poll.register(fd, select.POLLIN)
        while True:
            open_streams = [stream for stream in streams.values() if stream.open]
            # Once all are closed the end is near, or the program closed them and goes on.
            for fd, _ in poll.poll(1000 * _LOOK_SECONDS if open_streams else 2):
                streams[fd].read()
                if not streams[fd].open:
                    poll.unregister(fd)
            now = time.monotonic()
            if self.started is None and self.status.data.startswith(READY):
                self.started = now
            if self.ended is None and self._has_ended():
                self.ended = now
                self.kill()  # what it left behind
            if self.ended is not None:
                if not any(stream.open for stream in streams.values()) or now > self.ended + _END_SECONDS:
                    return
            elif not self.killed:
                self._limit(now, born)
                if self.started is not None and now >= next_look and not self.killed:
                    next_look = now + _LOOK_SECONDS
                    self._limit_usage()

    def _has_ended(self) -> bool:
        # Not reaped yet, so that its group's number cannot become another's.
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _limit(self, now: float, born: float) -> None:
        if now > (born + _START_SECONDS if self.started is None else self.started + self.limits.seconds):
            self.stop("time")
        elif max(self.out.total, self.err.total, self.status.total) > MOST_OUTPUT:
            self.stop("output")

    def _limit_usage(self) -> None:
        usage = self.look(self.process.pid)
        if usage.bytes > self.limits.memory_mb << 20:
            # One process is read after the other: of some that start or end meanwhile, what they share counts twice.
            usage = self.look(self.process.pid)
        if usage.bytes > self.limits.memory_mb << 20:
            self.stop("memory")
        elif self.processes is not None and usage.processes > self.processes:
            self.kill()

    def stop(self, reason: Stopped) -> None:
        """Ends it and remembers why."""
        self.stopped = reason
        self.kill()

    def kill(self) -> None:
        """Ends the whole tree: of a process namespace all die with its first process, else the group does."""
        self.killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def execute(
    command: Callable[[int], Sequence[str]],
    *,
    limits: Limits,
    stdin: int,
    pass_fds: Sequence[int],
    environment: dict[str, str],
    folder: str,
    keep_status: int,
    look: Callable[[int], Usage],
    processes: int | None,
) -> Watch:
    """Runs ``command(fd of the status pipe)`` in a group of its own and watches it until nothing is left of it.

    Raises:
        OSError: it could not be started.
    """
    with contextlib.ExitStack() as stack:
        keep = round(limits.output_kb * 1024)
        (out, out_end), (err, err_end), (status, status_end) = (_pipe(stack) for _ in range(3))
        process = subprocess.Popen(
            command(status_end.fileno()),
            stdin=stdin,
            stdout=out_end,
            stderr=err_end,
            pass_fds=[*pass_fds, status_end.fileno()],
            start_new_session=True,
            env=environment,
            cwd=folder,
        )
        for end in (out_end, err_end, status_end):
            end.close()
        watch = Watch(
            process,
            out=Stream(out.fileno(), keep),
            err=Stream(err.fileno(), keep),
            status=Stream(status.fileno(), keep_status),
            limits=limits,
            look=look,
            processes=processes,
        )
        try:
            watch.follow()
        finally:
            watch.kill()
            process.wait()
    return watch


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    read_end, write_end = os.pipe()
    return stack.enter_context(FileIO(read_end, "rb")), stack.enter_context(FileIO(write_end, "wb"))
