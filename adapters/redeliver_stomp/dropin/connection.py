# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Wraps a user's connection for its drop-in: one thread for callbacks and timers, and what passes the transport.

stomp.py reads and calls listeners on one thread. Were callbacks left there, a slow one would stop the reading, and
with it heart-beats and our receipts. So that thread only hands over here.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from redeliver_mw.adapter.kit.ledger_scope import scope_of_hosts
from redeliver_mw.adapter.kit.timer_heap import LoopTimer
from redeliver_stomp.capabilities import other_product, version_of
from redeliver_stomp.dropin.ack_batch import AckBatch
from redeliver_stomp.frames import RawFrame, encode, plain_frame
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.receipts import OnReceipt, error_text

log = logging.getLogger("redeliver_mw.stomp")
_numbers = itertools.count(1)  # of this process: a receipt's id is never used twice
RAW = "_redeliver_raw"  # on a frame of stomp.py's: its bytes as they came


class StompUserConnection:
    """Follows one connection object through its reconnects. `lost` is called on our thread, once for each loss."""

    def __init__(self, connection: Any, lost: Callable[[], None]) -> None:
        self.users, self.transport = connection, connection.transport
        self._lost = lost
        self.version = self.other_product = ""
        self.epoch = 0  # grows with each connection that is lost
        self.leaving = False  # the user has sent DISCONNECT
        self._up = bool(connection.is_connected())
        self._waiting: dict[bytes, OnReceipt] = {}
        self._shown: dict[bytes, str] = {}  # receipt of ours on a frame of the code's -> the code's own, or empty
        self._acks = AckBatch(self._write_acks, alive=lambda: self.is_open)
        self._lock = threading.Lock()
        self._loop: StompLoop | None = None
        self._where = ""
        self._seen = 0  # the epoch whose end our thread knows of
        self._process = self.transport.process_frame
        self.transport.process_frame = self._frame
        self._hurry()

    # -- what the shared core asks of a connection --------------------------------------------------

    @property
    def broker(self) -> str:
        """Return the broker's place, as `StompAdapter.broker` does."""
        if not self._where:
            host, port = self.transport.current_host_and_port or ("unknown", 61613)
            self._where = f"{host}:{port}"
        return self._where

    @property
    def ledger_scope(self) -> str:
        """Return the same scope as `StompAdapter.ledger_scope`: App and drop-in share the ledger of a source."""
        hosts = getattr(self.transport, "_Transport__host_and_ports", None)
        return scope_of_hosts(hosts) if hosts else self.broker

    @property
    def is_open(self) -> bool:
        """Return whether this is connected, and still the connection that our thread knows."""
        return self._up and self._seen == self.epoch and self.transport.socket is not None

    def later(self, seconds: float, fn: Callable[[], None]) -> None:
        self.call_later(seconds, fn)

    def call_later(self, seconds: float, fn: Callable[[], None]) -> LoopTimer:
        with self._lock:
            return self._running().call_later(seconds, lambda: self.guarded(fn))

    def hop(self, fn: Callable[[], None]) -> None:
        with self._lock:
            self._running().call(lambda: self.guarded(fn))

    @property
    def here(self) -> bool:
        """Return whether the caller is on our thread."""
        return self._loop is not None and threading.current_thread() is self._loop.thread

    def _running(self) -> StompLoop:
        if self._loop is None:
            self._loop = StompLoop("redeliver-stomp-dropin")
            self._loop.start()
        return self._loop

    def guarded(self, fn: Callable[[], None]) -> None:
        """Call what may run a callback. On our thread."""
        try:
            fn()
        except (KeyboardInterrupt, SystemExit) as error:
            # By hand it would end the receiver thread, and the connection with it.
            log.error("the callback ends the program (%s): the connection is closed", type(error).__name__)
            self.flush()
            self.cut()

    # -- what goes out ------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write frames of ours at once. Raises OSError or stomp.py's own exceptions if there is no connection."""
        queue = self.transport.send_queue
        if self.transport.blocking or queue is None:
            self.transport.send(data)
        else:
            queue.put(data)

    def ack(self, frame: bytes) -> None:
        """Send an ACK before long. On our thread."""
        if self._acks.add(frame) and self._loop is not None:
            self._loop.at_end_of_turn(self._acks.flush)

    def ack_at_once(self, frames: list[bytes]) -> None:
        """Write ACKs of the code's from another thread than ours, unless the connection is lost meanwhile."""
        self._acks.write_now(frames)

    def flush(self) -> None:
        """Send the ACKs that wait. From any thread."""
        self._acks.flush()

    def _write_acks(self, data: bytes) -> None:
        try:
            self.write(data)
        except Exception as error:  # stomp.py's own and OSError: the broker has the messages again
            log.debug("acks did not go out: %r", error)

    def expect(self, answer: OnReceipt, *, shown: str | None = None) -> str:
        """Return the id for a `receipt` header; its answer comes on our thread, and never if the connection is lost.

        `shown`: the frame is the code's, which asked for this receipt, or with an empty text for none. The code sees
        the answer as it would without ours.
        """
        name = f"redeliver-{os.getpid()}-{next(_numbers)}"
        if shown is not None:
            self._shown[name.encode()] = shown
        self._waiting[name.encode()] = answer
        return name

    def show_receipt(self, name: str) -> None:
        """Show a receipt to the user's listeners, in place of one of ours."""
        data = encode("RECEIPT", [("receipt-id", name)])
        self._process(plain_frame("RECEIPT", {"receipt-id": name}, b""), data)

    def cut(self) -> None:
        """Close it without a word, and without waiting."""
        wanted = self.transport.socket
        self.transport.running = False
        if wanted is not None:
            with contextlib.suppress(OSError):
                wanted.shutdown(socket.SHUT_RDWR)

    # -- what comes in, on the receiver thread ------------------------------------------------------

    def _frame(self, frame: Any, data: bytes) -> None:
        kind = frame.cmd
        self._acks.flush_old()
        if kind == "MESSAGE":
            setattr(frame, RAW, raw_of(data))
        elif kind in ("RECEIPT", "ERROR") and self._ours(frame, data):
            self.users.transport.get_listener("protocol-listener").on_heartbeat()  # it is a sign of life
            return
        elif kind == "CONNECTED":
            self._connected(frame)
        self._process(frame, data)

    def _connected(self, frame: Any) -> None:
        self.version, self.other_product = version_of(frame.headers), other_product(frame.headers)
        self.leaving, self._up = False, True
        self._hurry()

    def _ours(self, frame: Any, data: bytes) -> bool:
        """Pass on an answer to a receipt of ours; return whether it is none of the code's business."""
        raw = raw_of(data)
        name = raw.raw(b"receipt-id")
        answer = self._waiting.pop(name, None)
        if answer is None:
            return False
        shown = self._shown.pop(name, None)
        error = "" if raw.head.startswith(b"RECEIPT") else error_text(raw)
        self.hop(lambda: answer(error))
        if shown:
            frame.headers["receipt-id"] = shown
        elif shown is not None and error:
            frame.headers.pop("receipt-id", None)
        return shown is None or not (shown or error)

    def disconnected(self) -> None:
        """Note that the connection is lost, as stomp.py tells."""
        if self._up:
            self._up = False
            self.epoch += 1
            self._waiting.clear()
            self._shown.clear()
            self._acks.drop()
            epoch = self.epoch
            self.hop(lambda: self._end(epoch))

    def _end(self, epoch: int) -> None:
        self._seen = epoch
        self._lost()
        with self._lock:
            if not self._up and self._loop is not None and self.here:
                self._loop.stop()  # no message can come: the next connection gets a new thread
                self._loop = None

    def _hurry(self) -> None:
        """Turn off Nagle's algorithm, which stomp.py leaves on: 43 ms for each ACK that is followed by a SEND."""
        with contextlib.suppress(OSError, AttributeError):
            self.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def raw_of(data: bytes) -> RawFrame:
    """Return the frame for the bytes that stomp.py has cut out."""
    head, _, body = data.lstrip(b"\r\n").partition(b"\n\n")
    return RawFrame(head, body)
