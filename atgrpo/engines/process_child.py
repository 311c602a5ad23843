"""The child of a ``ProcessEngine``: holds the real engine and answers its parent."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from atgrpo.quiet import quiet

if TYPE_CHECKING:
    from torch import Tensor

    from atgrpo.engines.base import Engine
    from atgrpo.types import Request

LAUNCHER = {"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"} | {
    f"{of}WORLD_SIZE" for of in ("", "LOCAL_", "GROUP_", "ROLE_")
}
LAUNCHER_PREFIXES = ("MASTER_", "TORCHELASTIC_", "PET_")
"""With them the child would take itself for a rank of the trainer's group."""
PR_SET_PDEATHSIG = 1
HEARTBEAT_S = 1.0


def child_environment(
    own: Mapping[str, str], cores: Sequence[int] | None, device: int | Sequence[int] | None
) -> dict[str, str]:
    """The environment of a child that is no rank, computes on ``cores`` and sees ``device`` only."""
    child = {k: v for k, v in own.items() if k not in LAUNCHER and not k.startswith(LAUNCHER_PREFIXES)}
    if cores is not None:
        # vLLM would keep one of them free for a server that is not there.
        child |= {"OMP_NUM_THREADS": str(len(cores)), "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
    if device is not None:
        wanted = [device] if isinstance(device, int) else list(device)
        visible = own["CUDA_VISIBLE_DEVICES"].split(",") if "CUDA_VISIBLE_DEVICES" in own else None
        if visible is not None and not all(0 <= number < len(visible) for number in wanted):
            raise ValueError(f"device: got {device}, expected less than the {len(visible)} that are visible here")
        child["CUDA_VISIBLE_DEVICES"] = ",".join(visible[n].strip() if visible else str(n) for n in wanted)
    return child


def main(fd: int, parent: int) -> NoReturn:
    """Serves the process ``parent`` over the socket ``fd`` and dies with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be watched
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        # The parent decides when to stop. SIG_IGN would also reach the processes that the engine may start.
        signal.signal(number, lambda *_: None)
    os.set_inheritable(fd, False)
    connection = Connection(fd)
    cores = connection.recv()
    if cores:
        os.sched_setaffinity(0, cores)  # before torch counts the cores
    inbox: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        quiet()
        start, models, rest = pickle.loads(inbox.get())
        engine = start(models=models, **rest)
    except BaseException as error:
        traceback.print_exception(error)
        connection.send(("start", _as_engine_error(error, "engine did not start: ")))
        _leave(1)
    connection.send(("start", (engine.name, engine.exact)))
    _Server(engine, connection, inbox).run()
    _leave(0)


def _read(connection: Connection, inbox: SimpleQueue[Any]) -> None:
    # In a thread of its own, so that parent and child never wait for each other with both sockets full.
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # nobody is left to answer to
    except BaseException as error:  # a message that cannot be read: deaf it would be waited for in vain
        traceback.print_exception(error)
        os._exit(1)


def _leave(code: int) -> NoReturn:
    # Not through the interpreter's own end: what the engine has loaded may hang or print there.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass
class _Server:
    """Answers until told to close. Asked to step, it does so until a request is finished, and reads mail in between."""

    engine: Engine
    connection: Connection
    inbox: SimpleQueue[Any]
    tickets: set[int] = field(default_factory=set)
    """Of the requests under way."""
    refused: list[Exception] = field(default_factory=list)
    stepping: bool = False
    last_beat: float = 0.0

    def run(self) -> None:
        while True:
            while not self.stepping or not self.inbox.empty():
                name, arguments = self.inbox.get()
                if name == "submit":
                    self.submit(arguments)
                elif name == "step":
                    self.stepping = True
                else:
                    self.connection.send((name, self.answer(name, arguments)))
                    if name == "close":
                        return
            self.step()

    def submit(self, requests: list[tuple[int, Request]]) -> None:
        for ticket, request in requests:
            try:
                self.engine.submit(ticket, request)
                self.tickets.add(ticket)
            except Exception as error:
                self.refused.append(_portable(error))

    def step(self) -> None:
        finished: Any = self.refused.pop(0) if self.refused else []
        if not finished and self.tickets:
            try:
                finished = self.engine.step()
                self.tickets.difference_update(ticket for ticket, _ in finished)
            except Exception as error:
                finished = _portable(error)
                self.tickets.clear()  # nobody knows which of them the fault took along
        if finished or not self.tickets:
            self.connection.send(("step", finished))
            self.stepping = False
        elif time.monotonic() - self.last_beat > HEARTBEAT_S:
            self.connection.send(("alive", None))
            self.last_beat = time.monotonic()

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        try:
            if name == "load_weights":
                policy, path = arguments
                return self.engine.load_weights(policy, _tensors(path))
            if name == "receive_weights":
                return self.engine.load_weights(arguments[0], self.handed_over())
            return getattr(self.engine, name)(*arguments)
        except Exception as error:
            return _portable(error)

    def handed_over(self) -> Iterator[tuple[str, Tensor]]:
        """Copies: the parent lets go of a tensor once it is taken, and the engine may look at it later."""
        while (item := self.inbox.get()[1]) is not None:
            name, rebuild, arguments = item
            tensor = rebuild(*arguments).clone()
            self.connection.send(("taken", None))
            yield name, tensor


def _tensors(path: str) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # no mapping
            yield name, file.get_tensor(name)


def _portable(error: Exception) -> Exception:
    """The error as the parent can raise it; one that nobody foresaw is also printed here."""
    if type(error) is ValueError:
        return ValueError(str(error))
    if not _is_ours(error):
        traceback.print_exception(error)
    return _as_engine_error(error)


def _as_engine_error(error: BaseException, what: str = "") -> Exception:
    from atgrpo.engines.base import EngineError

    kind = "" if _is_ours(error) else f"{type(error).__name__}: "
    return EngineError(what + kind + " ".join(str(error).split()))


def _is_ours(error: BaseException) -> bool:
    from atgrpo.engines.base import EngineError

    return isinstance(error, EngineError)
