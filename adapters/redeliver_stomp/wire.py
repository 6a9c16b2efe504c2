# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one TCP connection: stomp.py's transport, whose receiver thread hands frames over in batches.

What stomp.py does itself would stall us: its connect waits for a silent peer for ever, its TLS shutdown too,
it writes from whichever thread calls, and leaves Nagle's algorithm on (43 ms for an ACK and a SEND).
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from stomp.transport import Transport
from stomp.utils import PollableQueue

from redeliver_stomp.frames import RawFrame, Splitter

CONNECT_TIMEOUT = 5.0  # seconds for TCP and TLS
RECEIVE_BYTES = 65536
TLS_QUEUE = 32  # writes that wait for stomp.py's own thread: more could block us
OnFrames = Callable[["StompSocket", list[RawFrame]], None]
Gone = Callable[["StompSocket", BaseException], None]


class StompSocket(Transport):
    """Calls `received` and `gone` on threads of this connection: `gone` once, and then nothing more."""

    socket: Any  # None before and after
    send_queue: Any  # of stomp.py's own thread; TLS only
    sel: Any
    current_host_and_port: Any
    start: Any  # these two without annotations, as all of stomp.py
    cleanup: Any

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, *, received: OnFrames, gone: Gone) -> None:
        drivers: Any = super()
        drivers.__init__([(host, port)], auto_decode=False)
        self._peer, self._tls = (host, port), tls
        self.where = f"{host}:{port}"
        self._received, self._gone = received, gone
        self._splitter = Splitter()
        self._error: BaseException | None = None
        self._once = threading.Lock()
        self._cut = False

    def open(self, first: bytes) -> None:
        """Connect, on a thread of its own, and say `first`. Returns at once."""
        threading.Thread(target=self._open, args=(first,), name="redeliver-stomp-connect", daemon=True).start()

    def _open(self, first: bytes) -> None:
        try:
            self.start()
            if self._cut:
                raise ConnectionAbortedError("given up")
            if self.blocking:
                self.socket.sendall(first)
            else:
                self.send_queue.put(first)
        except (OSError, AttributeError) as error:  # the latter where somebody has cut it meanwhile
            self._lost(error if isinstance(error, OSError) else ConnectionAbortedError("given up"))
            self.cut()

    def cut(self) -> None:
        """Close it without a word; from any thread, and it does not wait."""
        self._cut, self.running = True, False
        wanted = self.socket
        if wanted is not None:
            with contextlib.suppress(OSError):
                wanted.shutdown(socket.SHUT_RDWR)

    def write(self, data: bytes) -> int:
        """Write as much of `data` as goes without waiting, and return how many bytes. Raises OSError."""
        wanted, queue = self.socket, self.send_queue
        if wanted is None or (queue is None and not self.blocking):
            raise ConnectionAbortedError("the connection is closed")
        if queue is None:
            try:
                return int(wanted.send(data, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return 0
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
                # The broker has closed it, and the receiver thread this end, before either was reported.
                raise ConnectionAbortedError("the connection is closed") from None
        if queue.qsize() >= TLS_QUEUE:
            return 0
        queue.put(data)
        return len(data)

    # -- what stomp.py calls, on the connecting thread -----------------------------------------------

    def attempt_connection(self) -> None:
        """Connect with TCP and TLS, once, in bounded time.

        stomp.py's own method keeps the cause of a failure to itself.
        """
        made = socket.create_connection(self._peer, CONNECT_TIMEOUT)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                made = self._tls.wrap_socket(made, server_hostname=self._peer[0])
        except BaseException:
            made.close()
            raise
        made.setblocking(self._tls is None)
        self.socket, self.current_host_and_port = made, self._peer
        if self._tls is not None:  # as stomp.py does: its receiver thread writes, too
            self.send_queue = PollableQueue()
            self.sel = selectors.DefaultSelector()
            self.sel.register(self.send_queue, selectors.EVENT_READ)
            self.sel.register(made, selectors.EVENT_READ)
            self.blocking = False

    # -- and on its receiver thread ------------------------------------------------

    def receive(self) -> bytes:
        """Receive everything that comes until the end: stomp.py's own reading never sees a byte of it."""
        while self.running:
            try:
                data = self.socket.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionAbortedError("the broker closed the connection")
                self._received(self, self._splitter.feed(data))
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise  # TLS: stomp.py waits for more
            except Exception as error:
                self._error = self._error or error
                self.running = False
        return b""

    def notify(self, frame_type: str, frame: Any = None) -> None:
        """Note the end of the connection, which is all that matters: no listeners of stomp.py's kind are here."""
        if frame_type in ("disconnected", "receiver_loop_completed"):
            if self.socket is not None and frame_type == "receiver_loop_completed":
                self.cleanup()  # it was cut before stomp.py's loop began, which then does not do that
            self.connected = False
            self.notified_on_disconnect = True
            self._lost(self._error or ConnectionAbortedError("the connection is closed"))

    def _lost(self, error: BaseException) -> None:
        with self._once:
            gone, self._gone = self._gone, _nobody
        gone(self, error)


def _nobody(_wire: StompSocket, _error: BaseException) -> None:
    pass
