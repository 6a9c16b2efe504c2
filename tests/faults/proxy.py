# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a TCP proxy on 127.0.0.1 that cuts, stalls, swallows and crumbles what goes through it.

The proxy tells a connection apart by a word in what its client says first: RabbitMQ's clients send their connection
name in clear. Faults are set from any thread and hold for later connections too, until they are lifted.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Literal

Direction = Literal["up", "down"]  # to the broker, from the broker
_LOOKS = 4096  # bytes of a client's first words in which a role is looked for


class Proxy:
    """Listens at `port` as soon as it is made, and passes all on to `(host, upstream)`, until `close`."""

    def __init__(self, host: str, upstream: int, roles: tuple[str, ...] = ()) -> None:
        self._upstream = (host, upstream)
        self.roles = roles
        self.lock = threading.RLock()
        self._stalled: set[tuple[Direction, str]] = set()
        self._swallow: tuple[str, tuple[bytes, ...]] | None = None  # a role, and words of which one is said
        self.swallowed = threading.Event()
        self.crumb = 0  # bytes that are passed on at a time; 0: all that there is
        self.away = False  # who connects is sent away
        self.delay = 0.0  # seconds that everything waits here before it is passed on
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def cut(self, *, reset: bool = False) -> None:
        """Close every connection, without a word to either side; with `reset` by a RST."""
        for pair in list(self._pairs):
            pair.close(reset=reset)

    def stall(self, direction: Direction, role: str = "") -> None:
        """Pass nothing on in this direction, with `role` only of such connections; connections stay open."""
        with self.lock:
            self._stalled.add((direction, role))

    def resume(self) -> None:
        """Pass on all that was stalled, of connections whose client is still there."""
        with self.lock:
            self._stalled.clear()
            for pair in list(self._pairs):
                pair.flush()

    def swallow_next(self, role: str, words: tuple[bytes, ...] = (b"",)) -> None:
        """Swallow the next bytes of such a client that have one of these words: every connection is cut instead."""
        with self.lock:
            self.swallowed.clear()
            self._swallow = (role, words)

    def is_stalled(self, direction: Direction, role: str) -> bool:
        return (direction, "") in self._stalled or (direction, role) in self._stalled

    def swallows(self, role: str, data: bytes) -> bool:
        """Return whether new bytes of a client are to be swallowed. Called by the connection."""
        with self.lock:
            if self._swallow is None:
                return False
            wanted, words = self._swallow
            if wanted != role or not any(word in data for word in words):
                return False
            self._swallow = None
        self.swallowed.set()
        self.cut()
        return True

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def forget(self, pair: _Pair) -> None:
        self._pairs.discard(pair)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.away:
                client.close()
                continue
            try:
                broker = socket.create_connection(self._upstream, timeout=5)
            except OSError:
                client.close()  # the broker is down, and so are we
                continue
            broker.settimeout(None)
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(self, client, broker)
            self._pairs.add(pair)
            pair.start()


class _Pair:
    """Serves one connection: two sockets, two threads, and what is held back in each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._sockets = proxy, (client, broker)
        self._said = b""
        self.role = ""
        self._kept: dict[Direction, bytearray] = {"up": bytearray(), "down": bytearray()}
        self._closed = False

    def start(self) -> None:
        client, broker = self._sockets
        for direction, source in (("up", client), ("down", broker)):
            threading.Thread(target=self._pump, args=(direction, source), name="proxy", daemon=True).start()

    def flush(self) -> None:
        """Send what may be sent. Called under the proxy's lock."""
        client, broker = self._sockets
        if self._kept["up"] and self._is_gone(client):
            return self.close()
        targets: dict[Direction, socket.socket] = {"up": broker, "down": client}
        for direction, kept in self._kept.items():
            if self._closed or not kept or self._proxy.is_stalled(direction, self.role):
                continue
            start = 0
            try:
                while start < len(kept):
                    size = self._proxy.crumb or len(kept)
                    targets[direction].sendall(kept[start : start + size])
                    start += size
                    if self._proxy.crumb:
                        time.sleep(0.0002)  # else the kernel puts the crumbs together again
            except OSError:
                self.close()
            kept.clear()

    def _is_gone(self, client: socket.socket) -> bool:
        """Return whether the client has closed the connection: its thread may not have come to read that yet."""
        try:
            return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self, *, reset: bool = False) -> None:
        self._closed = True
        self._proxy.forget(self)
        for one in self._sockets:
            if reset:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.close()
                continue
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _pump(self, direction: Direction, source: socket.socket) -> None:
        while not self._closed:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            if not data:
                return self.close()
            if direction == "up":
                self._recognise(data)
                if self._proxy.swallows(self.role, data):
                    return
            if self._proxy.delay:
                time.sleep(self._proxy.delay)
            with self._proxy.lock:
                self._kept[direction] += data
                self.flush()

    def _recognise(self, data: bytes) -> None:
        if not self.role and len(self._said) < _LOOKS:
            self._said += data
            self.role = next((r for r in self._proxy.roles if r.encode() in self._said), "")
