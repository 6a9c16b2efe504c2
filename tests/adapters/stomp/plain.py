# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a witness that shares nothing with the adapter.

The witness speaks STOMP over a plain socket, and asks for ActiveMQ's statistics over AMQP.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from proton import Message, ProtonException, Timeout

from tests.brokers import Broker
from tests.brokers._amqp10 import plain_connection

_MEANING = {"\\c": ":", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}


class Seen(NamedTuple):
    """Holds a frame as it came: with its values unescaped, and the first value of each name."""

    command: str
    headers: dict[str, str]
    body: bytes


class Plain:
    """Speaks STOMP on one connection.

    Each request waits for its RECEIPT; what comes meanwhile is kept in `frames`.
    """

    def __init__(self, broker: Broker, *, client_id: str = "", patience: float = 10.0) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=patience)
        self._patience = patience
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._numbers = itertools.count(1)
        self.frames: list[Seen] = []
        more = f"client-id:{client_id}\n" if client_id else ""
        hello = f"CONNECT\naccept-version:1.2\nhost:x\nlogin:{broker.user}\npasscode:{broker.password}\n{more}\n\0"
        try:
            self._socket.sendall(hello.encode())
            assert self._next(patience).command == "CONNECTED"
        except BaseException:  # the broker was killed meanwhile, or refuses
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def say(self, command: str, headers: Mapping[str, object], body: bytes = b"") -> str:
        """Send a frame and wait for its receipt; return what an ERROR says instead, or an empty text."""
        receipt = f"w{next(self._numbers)}"
        lines = "".join(f"{name}:{escaped(str(value))}\n" for name, value in {**headers, "receipt": receipt}.items())
        self._socket.sendall(f"{command}\n{lines}\n".encode() + body + b"\0")
        while True:
            frame = self._next(self._patience)
            if frame.headers.get("receipt-id") == receipt:
                return frame.headers.get("message", "an ERROR") if frame.command == "ERROR" else ""
            self.frames.append(frame)

    def send(self, destination: str, body: bytes, headers: Mapping[str, object] | None = None) -> str:
        """Send a persistent message, as bytes unless `headers` say otherwise by a content-length of None."""
        given = {"destination": destination, "persistent": "true", "content-length": len(body), **(headers or {})}
        return self.say("SEND", {name: value for name, value in given.items() if value is not None}, body)

    def wait(self, seconds: float) -> Seen | None:
        """Return the next frame, or None if none comes within `seconds`."""
        if self.frames:
            return self.frames.pop(0)
        try:
            return self._next(seconds)
        except TimeoutError:
            return None

    def _next(self, seconds: float) -> Seen:
        end = time.monotonic() + seconds
        while True:
            self._buffer = self._buffer.lstrip(b"\n")
            if (found := self._split()) is not None:
                return found
            self._socket.settimeout(max(0.001, end - time.monotonic()))
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._buffer += data

    def _split(self) -> Seen | None:
        head, mark, rest = self._buffer.partition(b"\n\n")
        if not mark:
            return None
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name, unescaped(value))
        size = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
        if size < 0 or len(rest) <= size:
            return None
        self._buffer = rest[size + 1 :]
        return Seen(command, headers, rest[:size])


class Statistics:
    """Asks the broker's statistics plugin. A connection that a kill has taken is made again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connection: Any = None

    def size_and_in_flight(self, queue: str, seconds: float = 5.0) -> tuple[int, int] | None:
        """Return how many messages a queue has and how many are in flight, or None for a queue that is not there.

        The broker does not answer for such a queue.
        """
        if self._connection is None:
            self._open()
        question = Message(
            address=f"queue://ActiveMQ.Statistics.Destination.{queue}", reply_to=self._address, correlation_id=queue
        )
        self._sender.send(question)
        try:
            answer = self._receiver.receive(timeout=seconds)
        except Timeout:
            self.close()  # a late answer must not be taken for another one's
            return None
        self._receiver.accept()
        assert answer.body["destinationName"] == f"queue://{queue}"
        return int(answer.body["size"]), int(answer.body["inflightCount"])

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(ProtonException):  # the broker has ended it
                connection.close()

    def _open(self) -> None:
        b: Any = self._broker
        self._connection = plain_connection(f"amqp://{b.user}:{b.password}@{b.host}:{b.amqp_port}", timeout=30)
        self._sender = self._connection.create_sender(None)
        self._receiver = self._connection.create_receiver(None, dynamic=True, credit=10)
        self._address = self._receiver.link.remote_source.address


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace(":", "\\c")


def unescaped(value: str) -> str:
    pieces = iter(value.split("\\"))
    text = next(pieces)
    for piece in pieces:
        if not piece:  # an escaped backslash: what follows is plain
            text += "\\" + next(pieces, "")
        else:
            text += _MEANING["\\" + piece[0]] + piece[1:]
    return text
