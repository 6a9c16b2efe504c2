# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries RabbitMQ with pika: property lists and tables are written by hand, as pika would never write them."""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any
from unittest import mock

import pika
import pika.data
import pika.exceptions
import pika.spec

from redeliver_pika import redelivering
from tests.hostile.carrier import Carrier, Found, Handle, Limits, Made, body_for, fitting
from tests.hostile.texts import IDS, INVALID, forged, secret, text, word

_WIDTHS = {b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"l": 8, b"L": 8, b"f": 4, b"d": 8, b"D": 5}
_WIDTHS |= {b"T": 8, b"V": 0}
HEADERS = 13  # the flag of the table; the properties before it are 15 and 14
FITS = 110_000  # bytes of a table that can be copied with our headers beside it


class Properties(pika.BasicProperties):
    """Holds a property list as bytes, which go out as they are, and come in unread."""

    wire = b""

    def encode(self) -> list[bytes]:
        return [self.wire]

    def decode(self, encoded: bytes, offset: int = 0) -> Any:
        self.wire = bytes(encoded[offset:])
        return self


def short(value: bytes) -> bytes:
    return bytes((min(len(value), 255),)) + value[:255]


def sized(letter: bytes, content: bytes) -> bytes:
    return letter + struct.pack(">I", len(content)) + content


def string(value: str) -> bytes:
    return sized(b"S", value.encode("utf-8", "surrogatepass"))


def table(entries: list[tuple[bytes, bytes]]) -> bytes:
    content = b"".join(short(name) + value for name, value in entries)
    return struct.pack(">I", len(content)) + content


def value(rng: Random, depth: int = 0) -> bytes:
    """Return a field of any type, at the ends of its range more often than not."""
    whole = rng.choice((0, 1, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, rng.getrandbits(64)))
    eight = struct.pack(">Q", whole)
    times = (0, 1, 253402300799, 253402300800, 2**63 - 1, 2**63, 2**64 - 1, 2**31, 1_700_000_000)
    plain = (
        lambda: b"t" + bytes((rng.choice((0, 1, 2, 255)),)),
        lambda: b"b" + eight[:1],
        lambda: b"B" + eight[:1],
        lambda: b"s" + eight[:2],
        lambda: b"u" + eight[:2],
        lambda: b"I" + eight[:4],
        lambda: b"i" + eight[:4],
        lambda: b"l" + eight,
        lambda: b"L" + eight,
        lambda: b"f" + rng.choice((b"\x7f\xc0\0\0", b"\x7f\x80\0\0", b"\xff\x80\0\1", eight[:4])),
        lambda: b"d" + rng.choice((struct.pack(">d", float("nan")), struct.pack(">d", float("-inf")), eight)),
        lambda: b"D" + bytes((rng.choice((0, 2, 255)),)) + eight[:4],
        lambda: b"T" + struct.pack(">Q", rng.choice(times)),
        lambda: b"V",
        lambda: sized(b"x", rng.randbytes(rng.randrange(60))),
        lambda: sized(b"S", rng.choice(INVALID)),
        lambda: string(text(rng)),
        lambda: string(text(rng)),
    )
    if depth < 6 and rng.random() < 0.2:
        inner = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
        if rng.random() < 0.5:
            return sized(b"A", b"".join(inner))
        return b"F" + table([(name(rng), one) for one in inner])
    return rng.choice(plain)()


def nested(depth: int) -> bytes:
    """Return a table in a table in a table."""
    found = b"V"
    for _ in range(depth):
        found = b"F" + table([(b"k", found)])
    return found


def name(rng: Random) -> bytes:
    if rng.random() < 0.15:
        return rng.choice(INVALID)
    return rng.choice((b"", b"password", b"api_key", b"x" * 255, text(rng).encode("utf-8", "surrogatepass")[:200]))


def deaths(rng: Random) -> list[tuple[bytes, bytes]]:
    """Return the headers that brokers write of dead letters, as a stranger writes them."""
    one = [
        (b"count", rng.choice((b"l" + b"\xff" * 8, string("many"), b"V"))),
        (b"reason", string(rng.choice(("expired", "rejected", "\x1b[2J", "")))),
        (b"queue", rng.choice((string("nowhere"), string("\x1b]0;x\x07"), b"V", sized(b"S", b"\xff")))),
        (b"time", b"T" + struct.pack(">Q", rng.choice((0, 2**64 - 1, 253402300800)))),
        (b"exchange", string("")),
        (b"routing-keys", rng.choice((sized(b"A", string("k")), string("k"), sized(b"A", b"V")))),
    ]
    whole = sized(b"A", b"F" + table(one))
    return [
        (b"x-death", rng.choice((whole, whole, string("x"), sized(b"A", b""), b"V", sized(b"A", string("x"))))),
        (b"x-first-death-queue", rng.choice((string("nowhere"), b"V", string("\x1b[2J")))),
        (b"x-first-death-reason", rng.choice((string("rejected"), sized(b"S", b"\xff")))),
        (b"x-first-death-exchange", string("")),
    ]


def parsed(wire: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the entries of the table of a property list, as they stand there."""
    flags = struct.unpack_from(">H", wire)[0]
    at = 2
    for bit in (15, 14):
        if flags >> bit & 1:
            at += 1 + wire[at]
    if not flags >> HEADERS & 1:
        return ()
    end = at + 4 + struct.unpack_from(">I", wire, at)[0]
    at += 4
    found = []
    while at < end:
        width = wire[at]
        key, at = wire[at + 1 : at + 1 + width], at + 1 + width
        letter = wire[at : at + 1]
        size = _WIDTHS[letter] if letter in _WIDTHS else 4 + struct.unpack_from(">I", wire, at + 1)[0]
        found.append((key, wire[at : at + 1 + size]))
        at += 1 + size
    return tuple(found)


class Pika(Carrier):
    """Carries messages to RabbitMQ over AMQP 0-9-1."""

    scheme = "rabbitmq"
    driver = "pika"

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        self._connection: Any = None
        self._channel: Any = None

    # -- queues and messages

    def make(self, queue: str, rng: Random) -> None:
        kind = "quorum" if rng.random() < 0.25 else "classic"
        self._open().queue_declare(queue, durable=True, arguments={"x-queue-type": kind})

    def delete(self, queue: str) -> None:
        self._open().queue_delete(queue)

    def depth(self, queue: str) -> int:
        try:
            return int(self._open().queue_declare(queue, passive=True).method.message_count)
        except pika.exceptions.ChannelClosedByBroker:
            return 0

    def send(self, queue: str, made: Made) -> str:
        properties = Properties()
        properties.wire = made.wire
        try:
            self._open().basic_publish("", queue, made.body, properties, mandatory=True)
        except (pika.exceptions.AMQPError, OSError) as error:
            self._drop()
            return f"{type(error).__name__}: {error}"[:200]
        return ""

    def take(self, queue: str) -> list[Found]:
        found: list[Found] = []
        channel = self._open()
        with mock.patch.dict(pika.spec.props, {pika.BasicProperties.INDEX: Properties}):
            while True:
                try:
                    method, properties, body = channel.basic_get(queue, auto_ack=True)
                except pika.exceptions.ChannelClosedByBroker:
                    return found
                if method is None:
                    return found
                found.append(Found(body, parsed(properties.wire), properties.wire))

    # -- hostile ones

    def healthy(self, case: str) -> Made:
        return Made(case, b"\x10\x00\x02", f"case={case};".encode(), frozenset(), "healthy")

    def message(self, rng: Random, case: str, limits: Limits) -> Made:
        mark = string(f"case={case}")
        user: list[tuple[bytes, bytes]] = []
        about = rng.choice(("values", "values", "values", "many", "deep", "big", "bare", "broken", "forged", "forged"))
        theirs: list[tuple[bytes, bytes]] = []
        if about == "many":
            user = [(b"h%d" % n, rng.choice((b"V", b"t\x01"))) for n in range(rng.choice((1000, 10_000)))]
        elif about == "deep":
            user = [(b"deep", nested(rng.choice((33, 150, 2000))))]
        elif about == "big":
            user = [(b"big", sized(b"S", b"\x1b[2J" * (rng.choice((100, 100_000)) // 4)))]
        elif about == "broken":
            user = [(b"odd", rng.choice((b"Z", b"S\xff\xff\xff\xff", b"t", sized(b"F", b"\xff"), b"\0")))]
        elif about != "bare":
            user = [(b"u%d" % n, value(rng)) for n in range(rng.randrange(1, 8))]
            user += [(name(rng), value(rng)) for _ in range(rng.randrange(3))]
            user += [(b"password", string(secret(rng)))] * (rng.random() < 0.2)
        if about == "forged":
            theirs = [(n.encode(), string(v) if n in IDS else _forged(rng, v)) for n, v in forged(rng).items()]
            theirs += deaths(rng) if rng.random() < 0.5 else []
            theirs += [(b"x-delivery-count", value(rng)), (b"CC", sized(b"A", string("nowhere")))][: rng.randrange(3)]
        if limits.too_large and rng.random() < 0.1:
            user, about = [(b"large", sized(b"S", b"x" * (131_072 - rng.randrange(300, 4000))))], "too large"
        body = body_for(rng, case, limits.largest)
        entries = [*user, *theirs]
        if about != "bare" and rng.random() < 0.8:
            entries.insert(rng.randrange(len(entries) + 1), (b"case", mark))
            if rng.random() < 0.1:
                body = b""
        if not limits.too_large:
            entries = fitting(entries, FITS, lambda entry: 1 + len(entry[0]) + len(entry[1]), b"case")
            entries = list(dict(entries).items())  # a name that comes twice cannot be copied
        names = frozenset(key for key, _ in user)
        return Made(case, _property_list(rng, entries, bare=about == "bare"), body, names, about)

    def as_the_driver_reads(self, wire: bytes) -> object:
        """Return a header's value as pika reads it.

        Pika forgets how wide a number was, cuts fractions, and takes bytes that are UTF-8 for texts.
        """
        return _plain(pika.data.decode_value(wire, 0)[0])

    def readable(self, made: Made) -> bool:
        if made.about == "deep":
            return False  # pika reads it, and nobody can copy what it has made of it
        try:
            pika.BasicProperties().decode(made.wire)
        except Exception:
            return False
        return True

    # -- the drop-in

    @contextlib.contextmanager
    def dropin(self, queue: str, handle: Handle, options: Mapping[str, Any]) -> Iterator[None]:
        over, ready = threading.Event(), threading.Event()

        def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            handle(body + str((properties.headers or {}).get("case", "")).encode("utf-8", "replace"))

        def run() -> None:
            connection = pika.BlockingConnection(self._parameters())
            channel = connection.channel()
            channel.basic_qos(prefetch_count=50)
            # By name: a message with a CC header does not tell its queue.
            channel.basic_consume(queue, redelivering(on_message, settle="return", queue=queue, **options))
            ready.set()
            while not over.is_set():
                connection.process_data_events(0.05)
            connection.sleep(1.0)  # the last copies are there; their answers, and the acks of the originals, may not be
            connection.close()

        thread = threading.Thread(target=run, name="dropin")
        thread.start()
        ready.wait(20)
        try:
            yield
        finally:
            over.set()
            thread.join(20)

    # -- the connection

    def _parameters(self) -> pika.ConnectionParameters:
        b = self.broker
        return pika.ConnectionParameters(b.host, b.port, credentials=pika.PlainCredentials(b.user, b.password))

    def _open(self) -> Any:
        if self._connection is None or not self._connection.is_open:
            parameters = self._parameters()
            parameters.heartbeat = 0
            self._connection, self._channel = pika.BlockingConnection(parameters), None
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
        return self._channel

    def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                connection.close()

    def close(self) -> None:
        self._drop()


def _plain(value: Any) -> str:
    """Return a text that is the same whatever class of number a value is and in whatever order a table is."""
    if isinstance(value, dict):
        return repr(sorted((repr(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, list):
        return repr([_plain(item) for item in value])
    return repr(int(value)) if isinstance(value, int) else repr(value)


def _forged(rng: Random, told: str) -> bytes:
    """Return the value of a forged header: mostly a text, but a stranger may write any type."""
    return string(told) if rng.random() < 0.8 else value(rng)


def _property_list(rng: Random, entries: list[tuple[bytes, bytes]], *, bare: bool) -> bytes:
    flags, parts = 1 << 12, []

    def maybe(bit: int, made: bytes, chance: float = 0.3) -> None:
        nonlocal flags
        if rng.random() < chance:
            flags |= 1 << bit
            parts.append(made)

    def words() -> bytes:
        return short(rng.choice((*INVALID, b"x" * 255, word(rng).encode("utf-8", "surrogatepass"))))

    maybe(15, words())
    maybe(14, words())
    maybe(HEADERS, table(entries), 0.0 if bare else 1.0)
    parts.append(rng.choice((b"\x02", b"\x02", b"\x01")))  # delivery mode
    maybe(11, bytes((rng.choice((0, 4, 9, 255)),)))
    maybe(10, words())
    maybe(9, words())
    maybe(8, short(str(rng.choice((600_000, 4294967295, 99999999))).encode()))
    maybe(7, words())
    maybe(6, struct.pack(">Q", rng.choice((0, 1, 253402300800, 2**63, 2**64 - 1, 1_700_000_000))))
    maybe(5, words())
    maybe(4, short(b"guest"), 0.1)
    maybe(3, words())
    maybe(2, words(), 0.1)
    return struct.pack(">H", flags) + b"".join(parts)
