# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Serves a few pages over HTTP, for whatever watches this process: Kubernetes, Prometheus.

One daemon thread serves all clients; a slow or silent client does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Self

from ..errors import ConfigError, RedeliverError

log = logging.getLogger("redeliver_mw")

PATIENCE = 5.0  # seconds to read a client's request, and to send the answer
MOST_CLIENTS = 64  # at a time; with one more the oldest is dropped
MOST_BYTES = 8192  # of a request
_CURE = "Write HOST:PORT, such as 127.0.0.1:8080, or 0.0.0.0:8080 for Kubernetes"
JSON = "application/json"


class Answer(NamedTuple):
    """Holds what a page answers."""

    status: HTTPStatus
    body: bytes
    content_type: str = JSON


# Returns the answer to a request, of which it gets the Accept header. Called on the server's thread.
Page = Callable[[str], Answer]


def json_answer(status: HTTPStatus, content: Mapping[str, Any]) -> Answer:
    """Return an answer in JSON."""
    return Answer(status, json.dumps(content, ensure_ascii=False).encode() + b"\n")


class ServerAddress(NamedTuple):
    """Names the address to listen at."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """Parse the `HOST:PORT` of an option; an IPv6 host is in brackets. Raises ConfigError for any other text."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        if not colon or not bare or (":" in bare and bare == host) or not (port.isascii() and port.isdigit()):
            raise ConfigError(f"{text!r} is no HOST:PORT", where=option, cure=_CURE, code="health-address")
        if not 0 < int(port) < 65536:
            raise ConfigError(f"{port} is no port from 1 to 65535", where=option, cure=_CURE, code="health-address")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServedPages(NamedTuple):
    """Names pages by their paths, the address that is to answer with them, and the option that gave the address."""

    address: ServerAddress
    option: str
    pages: Mapping[str, Page]


@contextlib.contextmanager
def serving(*wanted: ServedPages | None) -> Iterator[None]:
    """Serve pages inside of this context; those with the same address are served by one server. None is left out.

    Raises ConfigError and RedeliverError as `PageServer.start` does.
    """
    by_address: dict[ServerAddress, list[ServedPages]] = {}
    for one in wanted:
        if one is not None:
            by_address.setdefault(one.address, []).append(one)
    with contextlib.ExitStack() as stack:
        for served in by_address.values():
            server = PageServer(*served)
            server.start()
            stack.callback(server.close)
        yield


class PageServer:
    """Listens at one address from `start` to `close`, and answers with pages."""

    def __init__(self, *served: ServedPages) -> None:
        """Take the pages, which all have the same address."""
        self._served = served
        self._address = served[0].address
        self._pages = {path: page for one in served for path, page in one.pages.items()}
        self._clients: dict[asyncio.Task[Any], None] = {}  # oldest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event
        self._failed: set[str] = set()  # paths of pages that have raised, which was logged
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen.

        Raises ConfigError for an address that does not belong to this machine; RedeliverError for a port that is not
        available.
        """
        listener = _listener(self._address, f"{self._served[0].option} {self._address}")
        self._thread = threading.Thread(target=self._run, args=(listener,), name="redeliver-pages", daemon=True)
        self._thread.start()
        for one in self._served:
            log.info("%s at http://%s%s", one.option.lstrip("-"), self._address, " and ".join(one.pages))

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
            return _response(json_answer(HTTPStatus.BAD_REQUEST, {"error": "this is no request"}))
        first, *fields = request.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return _response(json_answer(HTTPStatus.BAD_REQUEST, {"error": "this is no request"}))
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _response(json_answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "use GET"}))
        return _response(self._answer(path, _accepted(fields)), body=method == "GET")

    def _answer(self, path: str, accept: str) -> Answer:
        page = self._pages.get(path)
        if page is None:
            return json_answer(HTTPStatus.NOT_FOUND, {"error": f"there are {' and '.join(self._pages)}"})
        try:
            answer = page(accept)
        except Exception:  # an error of ours
            if path not in self._failed:
                self._failed.add(path)
                log.exception("%s of this process cannot be read", path)
            return json_answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "it cannot be read; the log says why"})
        self._failed.discard(path)
        return answer


def _accepted(fields: list[str]) -> str:
    """Return the value of a request's Accept header; empty if there is none."""
    for field in fields:
        name, _, value = field.partition(":")
        if name.strip().lower() == "accept":
            return value.strip()
    return ""


def _response(answer: Answer, *, body: bool = True) -> bytes:
    head = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *(["Allow: GET, HEAD"] if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join([*head, "", ""]).encode() + (answer.body if body else b"")


def _listener(address: ServerAddress, where: str) -> socket.socket:
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
