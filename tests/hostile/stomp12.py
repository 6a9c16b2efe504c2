# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries ActiveMQ with stomp.py: frames are written by hand on a plain socket."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import socket
import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import proton
import stomp
import stomp.utils

from redeliver_stomp import redelivering
from tests.adapters.stomp.plain import Statistics
from tests.hostile.carrier import Carrier, Found, Handle, Limits, Made, body_for
from tests.hostile.texts import INVALID, forged, secret, text

Headers = tuple[tuple[bytes, bytes], ...]
#: A character beyond U+FFFF: in a header it is two others once ActiveMQ has read the message from its disk.
FAR, LOST = re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}"), "\ufffd\ufffd".encode()


def escaped(told: bytes) -> bytes:
    return told.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b":", b"\\c")


def word(rng: Random) -> bytes:
    return text(rng).encode("utf-8", "surrogatepass").replace(b"\0", b"")


class Wire:
    """Speaks STOMP in bytes; what comes without being asked for is kept in `frames`."""

    def __init__(self, broker: Any) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._numbers = itertools.count(1)
        self.frames: list[tuple[bytes, Headers, bytes]] = []
        hello = f"CONNECT\naccept-version:1.2\nhost:x\nlogin:{broker.user}\npasscode:{broker.password}\n\n\0"
        try:
            self._socket.sendall(hello.encode())
            if (frame := self.next(10.0))[0] != b"CONNECTED":
                raise ConnectionError(repr(frame))
        except BaseException:
            self._socket.close()
            raise

    def say(self, command: bytes, lines: list[bytes], body: bytes = b"") -> str:
        """Send a frame and wait for its receipt; return what an ERROR says instead, or an empty text.

        Raises ConnectionError at the end of the connection.
        """
        receipt = b"w%d" % next(self._numbers)
        head = b"\n".join([command, *lines, b"receipt:" + receipt])
        self._socket.sendall(head + b"\n\n" + body + b"\0")
        while True:
            frame = self.next(30.0)
            if frame[0] == b"ERROR":
                return dict(frame[1]).get(b"message", b"an ERROR").decode("utf-8", "replace")
            if dict(frame[1]).get(b"receipt-id") == receipt:
                return ""
            self.frames.append(frame)

    def next(self, seconds: float) -> tuple[bytes, Headers, bytes]:
        """Return the next frame. Raises TimeoutError or ConnectionError."""
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

    def _split(self) -> tuple[bytes, Headers, bytes] | None:
        head, mark, rest = self._buffer.partition(b"\n\n")
        if not mark:
            return None
        command, *lines = head.split(b"\n")
        headers = tuple((n, v) for n, _, v in (line.partition(b":") for line in lines))
        size = int(dict(headers).get(b"content-length", b"-1"))
        size = rest.find(b"\0") if size < 0 else size
        if size < 0 or len(rest) <= size:
            return None
        self._buffer = rest[size + 1 :]
        return command, headers, rest[:size]

    def close(self) -> None:
        self._socket.close()


class Stomp(Carrier):
    """Carries messages to ActiveMQ."""

    scheme = "activemq"
    driver = "stomp.py"

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        logging.getLogger("stomp.py").setLevel(logging.CRITICAL)
        self._wire: Wire | None = None
        self._statistics = Statistics(broker)

    # -- queues and messages

    def make(self, queue: str, rng: Random) -> None:
        wire = self._open()
        wire.say(b"SUBSCRIBE", [b"destination:/queue/" + queue.encode(), b"id:look", b"browser:true", b"ack:auto"])
        wire.say(b"UNSUBSCRIBE", [b"id:look"])
        wire.frames.clear()

    def delete(self, queue: str) -> None:
        self.take(queue)

    def depth(self, queue: str) -> int:
        try:
            known = self._statistics.size_and_in_flight(queue, 3.0)
        except (proton.ProtonException, OSError):  # an idle connection is ended by the broker
            self._statistics.close()
            known = self._statistics.size_and_in_flight(queue, 3.0)
        return 0 if known is None else known[0]

    def send(self, queue: str, made: Made) -> str:
        lines = [b"destination:/queue/" + queue.encode(), *made.wire]
        try:
            why = self._open().say(b"SEND", lines, made.body)
        except OSError as error:
            why = f"{type(error).__name__}: {error}"
        if why:
            self._drop()
        return why[:200]

    def take(self, queue: str) -> list[Found]:
        found: list[Found] = []
        wire = self._open()
        end = time.monotonic() + 10
        while (waiting := self.depth(queue)) > 0 and time.monotonic() < end:
            wire.say(b"SUBSCRIBE", [b"destination:/queue/" + queue.encode(), b"id:take", b"ack:auto"])
            with contextlib.suppress(TimeoutError):
                while len(wire.frames) < waiting:
                    wire.frames.append(wire.next(1.0))
            wire.say(b"UNSUBSCRIBE", [b"id:take"])
            found += [
                Found(body, tuple((name, FAR.sub(LOST, value)) for name, value in headers))
                for _, headers, body in wire.frames
            ]
            wire.frames.clear()
        return found

    # -- hostile ones

    def healthy(self, case: str) -> Made:
        return Made(case, [b"persistent:true"], f"case={case};".encode(), frozenset(), "healthy")

    def message(self, rng: Random, case: str, limits: Limits) -> Made:
        user: list[tuple[bytes, bytes]] = []
        theirs: list[tuple[bytes, bytes]] = []
        about = rng.choice(("values", "values", "values", "many", "big", "bare", "odd", "forged", "forged", "forged"))
        if about == "many":
            user = [(b"h%d" % n, b"") for n in range(rng.choice((100, 900, 10_000)))]
        elif about == "big":
            user = [(b"big%d" % n, b"\x1b[2J" * 2000) for n in range(rng.choice((1, 5)))]
        elif about != "bare":
            user = [(b"u%d" % n, word(rng)) for n in range(rng.randrange(1, 8))]
            user += [(rng.choice((b"password", b"x" * 255, b"\x1b[2J", b"u\\nx", b" ", b"\xc3\xbc")), word(rng))]
            user += [(b"api_key", secret(rng).encode())] * (rng.random() < 0.2)
        if about == "odd":
            user += [(b"bytes", rng.choice(INVALID)), (rng.choice(INVALID), b"x")][: rng.randrange(1, 3)]
            theirs = [rng.choice(self.ODD) for _ in range(rng.randrange(1, 3))]
        if about == "forged":
            theirs = [
                (n.encode(), v.encode("utf-8", "surrogatepass").replace(b"\0", b"")) for n, v in forged(rng).items()
            ]
            theirs = [(n, v[:9000]) for n, v in theirs]
        if limits.too_large and rng.random() < 0.1:
            user, about = (
                [(b"a:b", b"c")] if rng.random() < 0.5 else [(b"h%d" % n, b"") for n in range(970)],
                "too large",
            )
        for chance, one in ((0.3, (b"correlation-id", word(rng))), (0.3, (b"type", word(rng)))):
            theirs += [one] * (rng.random() < chance)
        stamp = rng.choice((b"0", b"1", b"-1", b"253402300800000", b"9223372036854775807", b"9" * 40, b"x"))
        theirs += [(b"timestamp", stamp)] * (rng.random() < 0.3)
        theirs += [(b"expires", rng.choice((b"0", b"253402300800000", b"9223372036854775807")))] * (rng.random() < 0.2)
        theirs += [(b"reply-to", b"/queue/" + word(rng))] * (rng.random() < 0.1)
        body = body_for(rng, case, limits.largest)
        entries = [*user, *theirs]
        if about != "bare" and rng.random() < 0.8:
            entries.insert(rng.randrange(len(entries) + 1), (b"case", b"case=" + case.encode()))
        lines = [b"persistent:" + rng.choice((b"true", b"true", b"true", b"false"))]
        if b"\0" in body or rng.random() < 0.7:
            lines.append(b"content-length:%d" % len(body))
        lines += [n + b":" + escaped(v) for n, v in entries]
        return Made(case, lines, body, frozenset(n for n, _ in user), about)

    ODD = (
        (b"priority", b"abc"),
        (b"priority", b"99"),
        (b"redelivered", b"true"),
        (b"JMSXDeliveryCount", b"x"),
        (b"JMSXGroupID", b"\x1b[2J"),
        (b"message-id", b"ID:forged"),
        (b"ack", b"forged"),
        (b"subscription", b"forged"),
        (b"id", b"forged"),
        (b"transformation", b"jms-map-json"),
        (b"amq-msg-type", b"map"),
        (b"AMQ_SCHEDULED_DELAY", b"0"),
        (b"scheduledJobId", b"x"),
        (b"dlqDeliveryFailureCause", b"\x1b[2J"),
        (b"originalExpiration", b"-1"),
        (b"JMSDestination", b"queue://x"),
        (b"breadcrumbId", b"\x1b[2J"),
        (b"content-type", b"\x1b[2J"),
    )

    def readable(self, made: Made) -> bool:
        try:
            head = b"\n".join([b"MESSAGE", *made.wire])
            stomp.utils.parse_frame(head + b"\n\n" + made.body)
            head.decode()
        except Exception:
            return False
        return True

    # -- the drop-in

    @contextlib.contextmanager
    def dropin(self, queue: str, handle: Handle, options: Mapping[str, Any]) -> Iterator[None]:
        b = self.broker
        connection = stomp.Connection12([(b.host, b.port)], reconnect_attempts_max=3, auto_decode=False)
        connection.set_listener("", redelivering(_Listener(handle), connection, settle="return", **options))
        connection.connect(b.user, b.password, wait=True)
        connection.subscribe(f"/queue/{queue}", id="1", ack="client-individual")
        try:
            yield
        finally:
            if connection.is_connected():
                connection.disconnect(receipt="bye")

    # -- the connection

    def _open(self) -> Wire:
        if self._wire is None:
            self._wire = Wire(self.broker)
        return self._wire

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def close(self) -> None:
        self._drop()
        self._statistics.close()


class _Listener(stomp.ConnectionListener):
    """Handles messages as a user's listener."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def on_message(self, frame: Any) -> None:
        body = frame.body if isinstance(frame.body, bytes) else frame.body.encode("utf-8", "replace")
        self._handle(body + str(frame.headers.get("case", "")).encode("utf-8", "replace"))
