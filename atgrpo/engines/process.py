"""Any engine in a process of its own: the trainer's random numbers, process group and memory stay the trainer's."""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch import Tensor
from tqdm import tqdm

from atgrpo.engines.base import AgreedError, Engine, EngineError, EngineLostError
from atgrpo.engines.common import check_policy
from atgrpo.engines.process_child import child_environment
from atgrpo.engines.weight_files import WeightFiles, handle, walk
from atgrpo.ranks import Ranks
from atgrpo.types import Completion, Request

T = TypeVar("T")
Transfer = Literal["file", "ipc"]
# Not -m: the module must be looked for where the parent found it, whatever the working directory holds.
ENTRY = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from atgrpo.engines.process_child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
STEP_S = 0.02
LOOK_S = 0.2
CLOSE_S = 5.0


class ProcessEngine:
    """Runs ``start(models=models, **rest)`` in a child process and passes everything on to it.

    Every rank has its own child. Messages are exchanged when something is finished, not for every forward pass, and
    requests that are submitted meanwhile join the running ones. A request that the engine refuses is reported by the
    ``step`` after it. The child lives as long as the thread that started it.
    """

    def __init__(
        self,
        start: Callable[..., Engine],
        models: Mapping[str, str | Path],
        *,
        ranks: Ranks,
        cores: Sequence[int] | None = None,
        device: int | Sequence[int] | None = None,
        transfer: Transfer = "file",
        timeout_s: float = 600.0,
        **rest: Any,
    ) -> None:
        """Starts the child; all ranks must do so together.

        Args:
            start: An engine's class or another function that makes one; it has to be picklable.
            models: Policy name to model folder.
            ranks: The processes of the run. The first one of each machine writes the weights for all of them.
            cores: The only ones that the child may use; those of the parent if None.
            device: The only GPU that the child sees, or several, counted among those that are visible here.
            transfer: ``file``: all children of a machine read weights from shared memory, as does one that is started
                again. ``ipc``: each rank hands its own GPU's memory to its child, which is faster and leaves nothing
                to start again from.
            timeout_s: A child that says nothing for so long when it was asked something is given up.
            **rest: Further arguments of ``start``.

        Raises:
            EngineError: ``start`` failed on some rank; the child printed the traceback.
        """
        try:
            self._payload = pickle.dumps((start, dict(models), rest))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(f"start: got {start!r}, expected what can be pickled: {error}") from None
        self._models = frozenset(models)
        self._ranks = ranks
        self._cores = cores
        self._environment = child_environment(os.environ, cores, device)
        self._timeout = timeout_s
        self._transfer = transfer
        self._shared = WeightFiles() if ranks.rank == ranks.leader and transfer == "file" else None
        self._files: dict[str, str] = {}
        try:
            on_every_rank(ranks, self._start)
        except EngineError:
            self.close()
            raise
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._process.pid

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # Also a child that stopped reading is noticed.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(self._timeout) + 1, 0))
        with theirs:
            command = [sys.executable, "-c", ENTRY, str(theirs.fileno()), str(os.getpid()), *sys.path]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=self._environment, stdin=subprocess.DEVNULL
            )
        self._connection = Connection(ours.detach())
        self._unsent: list[tuple[int, Request]] = []
        self._stepping = False
        self._early: Any = None
        self._heard = time.monotonic()
        self._send(self._cores)
        self._send(self._payload)
        name, self.exact = self._answer("start")
        self.name = f"{name}, own process"

    def restart(self) -> None:
        """Ends the child, starts another and gives it the weights that every policy was last given here.

        Raises:
            EngineLostError: with ``ipc`` there are none.
        """
        self._end()
        if self._transfer == "ipc":
            raise EngineLostError(f"engine process {self.pid} is lost, and transfer=ipc left no weights for another")
        self._start()
        for policy, file in self._files.items():
            self._call("load_weights", policy, file)

    def submit(self, ticket: int, request: Request) -> None:
        """Queues a request; it leaves with the next ``step``."""
        self._unsent.append((ticket, request))

    def step(self) -> Sequence[tuple[int, list[Completion]]]:
        """Waits until something is finished, or for a moment, so that the caller can hand in what came up meanwhile."""
        if self._unsent:
            self._send(("submit", self._unsent))
            self._unsent = []
        if not self._stepping:
            self._send(("step", ()))
            self._stepping = True
        message = self._early or self._receive(STEP_S)
        self._early = None
        if message is None or message[0] == "alive":
            return []
        self._stepping = False
        finished: list[tuple[int, list[Completion]]] = _value(message)
        return finished

    def load_weights(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Gives the leader's ``weights`` to the children of its machine; all ranks must push together.

        Every rank walks its iterable to the end. A failure on one rank is raised on all.
        """
        check_policy(policy, self._models)
        if self._transfer == "ipc":
            on_every_rank(self._ranks, lambda: self._hand_over(policy, weights))
            return
        files = on_every_rank(self._ranks, lambda: self._shared.write(weights) if self._shared else walk(weights))
        before, self._files[policy] = self._files.get(policy), files[self._ranks.leader]
        try:
            on_every_rank(self._ranks, lambda: self._call_or_restart("load_weights", policy, self._files[policy]))
        finally:
            if self._shared and before:
                self._shared.remove(before)

    def _hand_over(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> None:
        """One tensor at a time, each kept until the child has its copy."""
        rest = iter(weights)
        try:
            self._send(("receive_weights", (policy,)))
            for name, tensor in rest:
                self._send(("tensor", (name, *handle(tensor))))
                self._answer("taken", or_else="receive_weights")  # which is how it refuses one
            self._send(("tensor", None))
            self._answer("receive_weights")
        finally:
            walk(rest)

    def sleep(self) -> None:
        """Gives accelerator memory back. A child that is lost by now has none, and is started anew by ``wake``."""
        with suppress(EngineLostError):
            self._call("sleep")

    def wake(self) -> None:
        """Takes it again. A child that died asleep is started anew."""
        on_every_rank(self._ranks, lambda: self._call_or_restart("wake"))

    def stats(self) -> Mapping[str, float]:
        """The child's own; none of one that is lost."""
        stats: Mapping[str, float] = {}
        with suppress(EngineLostError):
            stats = self._call("stats")
        return stats

    def close(self) -> None:
        """Ends the child, kindly for five seconds, and removes the weight files."""
        atexit.unregister(self.close)
        with suppress(OSError):
            self._connection.send(("close", ()))
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_S)
        self._end()
        if self._shared:
            self._shared.close()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _call_or_restart(self, name: str, *arguments: Any) -> None:
        try:
            self._call(name, *arguments)
        except EngineLostError as error:
            tqdm.write(f"{error}; started again")
            self.restart()  # a new child is awake and is given all files

    def _call(self, name: str, *arguments: Any) -> Any:
        self._send((name, arguments))
        return self._answer(name)

    def _answer(self, name: str, or_else: str | None = None) -> Any:
        while True:
            message = self._receive(LOOK_S)
            if message is not None and message[0] in (name, or_else):
                return _value(message)
            if message is not None and message[0] == "step":
                self._early = message

    def _send(self, message: Any) -> None:
        try:
            self._connection.send(message)
        except OSError:  # a closed socket, or one that nobody reads
            raise self._lost() from None
        self._heard = time.monotonic()

    def _receive(self, wait: float) -> Any:
        """The child's next message, None if there was none for ``wait`` seconds."""
        gone = self._process.poll() is not None  # looked at first: its last words may still be there
        try:
            if self._connection.poll(wait):
                message = self._connection.recv()
                self._heard = time.monotonic()
                return message
        except (EOFError, OSError):
            raise self._lost() from None
        if gone or time.monotonic() - self._heard > self._timeout:
            raise self._lost()
        return None

    def _lost(self) -> EngineLostError:
        try:
            code = self._process.wait(0.5)
            text = f"engine process {self.pid} died, exit code {code}"
        except subprocess.TimeoutExpired:
            self._end()
            text = f"engine process {self.pid} did not answer for {time.monotonic() - self._heard:.0f} s and was "
            text += f"killed, exit code {self._process.returncode}"
        self._connection.close()
        return EngineLostError(text)


def _value(message: tuple[str, Any]) -> Any:
    value = message[1]
    if isinstance(value, Exception):
        raise value
    return value


def on_every_rank(ranks: Ranks, work: Callable[[], T]) -> list[T]:
    """What ``work`` returned on each rank; whoever fails takes all others along instead of letting them wait."""
    result, failure = None, None
    try:
        result = work()
    except (EngineError, ValueError) as error:
        failure = error
    outcomes = ranks.gather((result, failure and str(failure)))
    if failure and ranks.size == 1:
        raise failure
    for rank, (_, text) in enumerate(outcomes):
        if text:
            raise AgreedError(f"rank {rank}: {text}") from failure
    return [returned for returned, _ in outcomes]  # type: ignore[misc]  # None only where T is
