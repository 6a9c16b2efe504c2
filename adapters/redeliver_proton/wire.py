# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one TCP connection with one proton transport on it: bytes in, events out, bytes back. On the loop's thread.

Events go to the handler of their link, session or connection, as proton's own containers dispatch them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import proton

from redeliver_proton.loop import ProtonLoop

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_READS = 32  # of one buffer each, before others have their turn


class Refused(ConnectionError):
    """Reports that the peer closed with a reason: an AMQP condition."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(f"{name}: {description}" if description else name)
        self.name, self.description = name, description

    @property
    def forbids(self) -> bool:
        """Return whether it is this user who may not."""
        return "unauthorized" in self.name


def refusal(condition: Any) -> ConnectionError:
    """Return the error that a peer named when it closed or ended something; it may have named none."""
    if condition is None:
        return ConnectionError("the broker closed it")
    return Refused(condition.name, condition.description or "")


class ProtonSocket:
    """Opens as soon as it is made. `ended(error)` is called once, when nothing more can come of it."""

    def __init__(
        self,
        loop: ProtonLoop,
        connection: proton.Connection,
        transport: proton.Transport,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        ended: Callable[[BaseException], None],
    ) -> None:
        self._loop, self._tls, self._host, self._ended = loop, tls, host, ended
        self._connection, self._transport = connection, transport
        self._collector = proton.Collector()
        connection.collect(self._collector)
        self._sock: Any = None
        self._running = self._over = self._dispatching = False
        self._wanted = 0
        self._deadline: Any = None
        self._due = 0.0
        self._addresses: list[Any] = []
        self.error: BaseException | None = None  # what the peer or the protocol reported before the end
        try:
            self._addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._loop.call(partial(self.drop, error))
            return
        self._connect_next(ConnectionError("no address"))

    def drop(self, error: BaseException) -> None:
        """Cut it: the peer is not asked for a goodbye. What came before is dealt with first."""
        if self._over:
            return
        self._over = True
        with contextlib.suppress(Exception):
            self._dispatch()
        self._loop.pumps.discard(self.pump)
        if self._deadline is not None:
            self._deadline.cancel()
        self._close_socket()
        with contextlib.suppress(proton.ProtonException):
            self._transport.unbind()
        self._ended(self.error or error)
        if self._dispatching:  # an event's handler is at work, and may look at its link once more
            self._loop.call(self._let_go)
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Take our handlers off the driver's endpoints, and release those.

        They hang there on the C side, where Python's collector of cycles does not see that they lead back to them: each
        connection would keep the adapter that it was of, for good (seen on proton 0.40).
        """
        connection = self._connection
        for first in (connection.link_head(0), connection.session_head(0)):
            endpoint: Any = first
            while endpoint is not None:
                endpoint.handler = None
                endpoint = endpoint.next(0)
        connection.handler = None
        self._collector.release()
        connection.free()

    # -- opening ----------------------------------------------------------------------------------

    def _connect_next(self, error: BaseException) -> None:
        if not self._addresses:
            self._loop.call(lambda: self.drop(error))
            return
        family, kind, protocol, _, address = self._addresses.pop(0)
        sock = self._sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._close_socket()
            return self._connect_next(OSError(code, os.strerror(code)))
        self._loop.watch(sock, WRITE, self._connected)

    def _connected(self, _mask: int) -> None:
        if code := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._close_socket()
            return self._connect_next(OSError(code, os.strerror(code)))
        if self._tls is None:
            return self._start()
        self._loop.watch(self._sock, 0, self._connected)
        self._sock = self._tls.wrap_socket(self._sock, server_hostname=self._host, do_handshake_on_connect=False)
        self._shake(0)

    def _shake(self, _mask: int) -> None:
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return self._loop.watch(self._sock, READ, self._shake)
        except ssl.SSLWantWriteError:
            return self._loop.watch(self._sock, WRITE, self._shake)
        except (OSError, ssl.CertificateError) as error:
            return self.drop(error)
        self._start()

    def _start(self) -> None:
        self._running = True
        self._loop.watch(self._sock, READ, self._ready)
        self._wanted = READ
        self._loop.pumps.add(self.pump)

    # -- bytes ------------------------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        if mask & READ:
            self._read()

    def _read(self) -> None:
        transport = self._transport
        for _ in range(_READS):
            if (room := transport.capacity()) <= 0:
                return
            try:
                data = self._sock.recv(room)
            except _AGAIN:
                return
            except OSError as error:
                return self.drop(error)
            if not data:
                return self.drop(self.error or ConnectionError("the peer closed the connection"))
            transport.push(data)
            if len(data) < room and self._tls is None:
                return

    def pump(self) -> None:
        """Deal with what came, write what there is to write."""
        if self._over:
            return
        self._dispatch()
        while not self._over and (size := self._transport.pending()) > 0:
            try:
                sent = self._sock.send(self._transport.peek(size))
            except _AGAIN:
                self._want(READ | WRITE)
                break
            except OSError as error:
                return self.drop(error)
            self._transport.pop(sent)
            self._dispatch()
        else:
            self._want(READ)
        if not self._over:
            self._keep_time()

    def _want(self, events: int) -> None:
        if not self._over and events != self._wanted:
            self._wanted = events
            self._loop.watch(self._sock, events, self._ready)

    def _keep_time(self) -> None:
        """Keep the heart-beats of both sides, and end the connection when the protocol has come to an end."""
        if self._transport.closed:
            return self.drop(self.error or ConnectionError("the connection was closed"))
        due = self._transport.tick(self._loop.time())
        if due and (self._deadline is None or not self._deadline.waits or due < self._due):
            if self._deadline is not None:
                self._deadline.cancel()
            self._due = due
            self._deadline = self._loop.call_later(due - self._loop.time(), self._tick)

    def _tick(self) -> None:
        self._deadline = None  # the pump of this very turn asks the transport again

    def _dispatch(self) -> None:
        collector, within = self._collector, self._dispatching
        self._dispatching = True
        try:
            while (event := collector.peek()) is not None:
                if event.type is proton.Event.TRANSPORT_ERROR:
                    self.error = self.error or refusal(self._transport.condition)
                elif (handler := event.handler) is not None:
                    event.dispatch(handler)
                collector.pop()
        finally:
            self._dispatching = within

    def _close_socket(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._loop.watch(sock, 0, self._ready)
            sock.close()
