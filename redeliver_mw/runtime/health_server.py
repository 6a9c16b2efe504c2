# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Serves `/live` and `/ready` over HTTP, for whatever watches this process, such as Kubernetes.

`/live` answers 200 as long as this process answers at all. `/ready` answers 200, or 503 with what is not ready. One
daemon thread serves all clients; a slow or silent client does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Self

from ..errors import ConfigError, RedeliverError

log = logging.getLogger("redeliver_mw")

OPTION = "--health"
PATIENCE = 5.0  # seconds to read a client's request, and to send the answer
MOST_CLIENTS = 64  # at a time; with one more the oldest is dropped
MOST_BYTES = 8192  # of a request
_CURE = "Write HOST:PORT, such as 127.0.0.1:8080, or 0.0.0.0:8080 for Kubernetes"

NotReady = Callable[[], Sequence[Mapping[str, Any]]]  # returns what keeps the process from being ready; empty: nothing


class HealthAddress(NamedTuple):
    """Names the address to listen at."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `HOST:PORT`; an IPv6 host is in brackets. Raises ConfigError for any other text."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not colon or not bare or (":" in bare and bare == host) or not (port.isascii() and port.isdigit()):
            raise ConfigError(f"{text!r} is no HOST:PORT", where=OPTION, cure=_CURE, code="health-address")
        if not 0 < int(port) < 65536:
            raise ConfigError(f"{port} is no port from 1 to 65535", where=OPTION, cure=_CURE, code="health-address")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@contextlib.contextmanager
def serving_health(address: HealthAddress | None, not_ready: NotReady) -> Iterator[None]:
    """Serve inside of this context, and answer with `not_ready`, which is called on the server's thread.

    None: no server.

    Raises ConfigError for an address that does not belong to this machine; RedeliverError for a port that is not
    available.
    """
    if address is None:
        yield
        return
    server = HealthServer(address, not_ready)
    server.start()
    try:
        yield
    finally:
        server.close()


class HealthServer:
    """Listens at an address from `start` to `close`."""

    def __init__(self, address: HealthAddress, not_ready: NotReady) -> None:
        self._address, self._not_ready = address, not_ready
        self._clients: dict[asyncio.Task[Any], None] = {}  # oldest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event
        self._unreadable = False  # whether this was logged
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen. Raises ConfigError, RedeliverError."""
        listener = _listener(self._address)
        self._thread = threading.Thread(target=self._run, args=(listener,), name="redeliver-health", daemon=True)
        self._thread.start()
        log.info("health at http://%s/live and /ready", self._address)

    def close(self) -> None:
        """Stop listening."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._over.set)
            thread.join(1.0)

    def _run(self, listener: socket.socket) -> None:
        with listener, asyncio.Runner() as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve_client, sock=listener, limit=MOST_BYTES)
        async with server:
            await self._over.wait()
            for client in list(self._clients):
                client.cancel()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = None
        if len(self._clients) > MOST_CLIENTS:
            next(iter(self._clients)).cancel()
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(await self._answer_to(reader))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            del self._clients[task]
            writer.close()

    async def _answer_to(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return _response(HTTPStatus.BAD_REQUEST, {"error": "this is no request"})
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _response(HTTPStatus.BAD_REQUEST, {"error": "this is no request"})
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "use GET"})
        status, answer = self._answer(path)
        return _response(status, answer, body=method == "GET")

    def _answer(self, path: str) -> tuple[HTTPStatus, dict[str, Any]]:
        if path == "/live":
            return HTTPStatus.OK, {"live": True}
        if path != "/ready":
            return HTTPStatus.NOT_FOUND, {"error": "there are /live and /ready"}
        found = self._obstacles()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return status, {"ready": not found, "not_ready": found}

    def _obstacles(self) -> list[Mapping[str, Any]]:
        try:
            found = list(self._not_ready())
        except Exception:  # an error of ours: the client learns that the state is unknown
            if not self._unreadable:
                self._unreadable = True
                log.exception("the health of this process cannot be read")
            return [{"what": "app", "why": "its health cannot be read; the log says why"}]
        self._unreadable = False
        return found


def _response(status: HTTPStatus, answer: Mapping[str, Any], *, body: bool = True) -> bytes:
    data = json.dumps(answer, ensure_ascii=False).encode() + b"\n"
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + (data if body else b"")


def _listener(address: HealthAddress) -> socket.socket:
    where = f"{OPTION} {address}"
    try:
        family, *_, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family, backlog=MOST_CLIENTS)
    except (socket.gaierror, UnicodeError):
        raise ConfigError("there is no such host", where=where, cure=_CURE, code="health-address") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            cure = "End what listens there, or name another port"
            raise RedeliverError("this port is taken", where=where, cure=cure, code="port-taken") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(
                "this is no address of this machine", where=where, cure=_CURE, code="health-address"
            ) from None
        cure = "Name a port from 1024 on"
        raise RedeliverError(
            f"it cannot be listened at: {error.strerror}", where=where, cure=cure, code="health-address"
        ) from None
