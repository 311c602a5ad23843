"""The HTTP side of the endpoint: one server per process, on the loopback interface; a key tells the plays apart."""

from __future__ import annotations

import json
import re
import socket
import socketserver
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Protocol

from atgrpo.rollout.endpoint_calls import AbandonedError
from atgrpo.rollout.endpoint_chat import RefusedError

MOST = 16 * 2**20
"""Bytes of a request."""

Reply = dict[str, Any] | list[dict[str, Any]]
"""The body of an answer, or the chunks of a stream."""


class Answers(Protocol):
    """A play, as the server knows it."""

    def models(self) -> dict[str, Any]: ...

    def chat(self, body: Any, there: Callable[[], bool]) -> Reply:
        """Answers a chat completion; ``there`` tells whether its client still waits."""

    def fail(self, error: BaseException) -> None:
        """Something of ours broke while it was answered."""


class Server(ThreadingHTTPServer):
    """Hands each request to the play whose key it carries."""

    request_queue_size = 1024  # plays of many trajectories may all call in the same moment

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plays: dict[str, Answers] = {}

    def server_bind(self) -> None:
        """Without the lookup of the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    @property
    def base_url(self) -> str:
        """What clients are given."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


_starting = Lock()


def the_server() -> Server:
    """This process's server; started when it is first needed, ended with the process."""
    with _starting:
        return _started()


@cache
def _started() -> Server:
    server = Server()
    Thread(target=server.serve_forever, name="endpoint", daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve("/v1/models", lambda play, body: play.models())

    def do_POST(self) -> None:
        self._serve("/v1/chat/completions", lambda play, body: play.chat(_json(body), self._there))

    def _serve(self, path: str, reply: Callable[[Answers, bytes], Reply]) -> None:
        # Read before anything is refused: closing on unread bytes would reset the connection, and the answer with it.
        try:
            body = self.rfile.read(self._length())
        except RefusedError as error:
            with suppress(OSError):
                self._write(error.status, error.body)
                self._drain()
            return
        play = self.server.plays.get(self.headers.get("Authorization", "").removeprefix("Bearer ").strip())
        try:
            if play is None:
                raise RefusedError("api_key: got that of no play under way", status=401, code="invalid_api_key")
            if self.path.partition("?")[0] != path:
                raise RefusedError(f"got {self.command} {self.path:.80}, expected {path}", status=404)
            status, said = 200, reply(play, body)
        except RefusedError as error:
            status, said = error.status, error.body
        except AbandonedError as error:
            status, said = 503, RefusedError(str(error)).body
        except Exception as error:
            assert play is not None
            play.fail(error)
            status, said = 500, RefusedError(f"{type(error).__name__}: {error}").body
        with suppress(OSError):  # a client that has hung up
            self._write(status, said)

    def _length(self) -> int:
        """Of the body."""
        given = self.headers.get("Content-Length") or "0"
        if "Transfer-Encoding" in self.headers:
            raise RefusedError("Transfer-Encoding: got one, expected a body of a known Content-Length", status=411)
        if not re.fullmatch(r"\d+", given, re.ASCII):
            raise RefusedError(f"Content-Length: got {given!r:.80}, expected a number of bytes")
        if len(given) > 18 or int(given) > MOST:
            raise RefusedError(f"Content-Length: got {given:.20}, expected at most {MOST} bytes", status=413)
        return int(given)

    def _drain(self) -> None:
        """Takes what comes of a body that is not read, for a moment: the client may read only once all is sent."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(1)
        end = time.monotonic() + 10
        while self.connection.recv(2**16) and time.monotonic() < end:
            pass

    def _write(self, status: int, reply: Reply) -> None:
        stream = isinstance(reply, list)
        events = [f"data: {json.dumps(chunk)}\n\n" for chunk in reply] if isinstance(reply, list) else []
        body = ("".join([*events, "data: [DONE]\n\n"]) if stream else json.dumps(reply)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(body)))
        # A connection per call: one that idles would hold a thread, and closing it would race with its next call.
        self.send_header("Connection", "close")
        self.send_header("x-should-retry", "false")  # clients of openai ask again otherwise, to the same end
        self.end_headers()
        self.wfile.write(body)

    def _there(self) -> bool:
        """Whether the client still waits: one that has gone leaves an end of file behind."""
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: there may be hundreds of requests in a second."""


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the request got no JSON: {error}") from error
