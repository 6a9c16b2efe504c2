# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries Artemis and RabbitMQ with proton: AMQP 1.0 messages are written by hand, section by section."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import proton
import proton.reactor
from proton.handlers import MessagingHandler

from redeliver_mw.limbo import Parked
from redeliver_proton import redelivering
from tests.brokers._amqp10 import plain_connection
from tests.contract.proton_world import Witness
from tests.contract.rabbit_proton_world import RabbitWitness, path
from tests.hostile.carrier import Carrier, Found, Handle, Limits, Made, body_for, fitting
from tests.hostile.texts import IDS, INVALID, forged, secret, text, word

HEADER, ANNOTATIONS, FIELDS, APPLICATION, DATA, SEQUENCE, VALUE = 0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
NULL = b"\x40"
FITS = 100_000  # bytes of application properties that can be copied with ours beside them
_WIDTHS = {0x3: 0, 0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}  # 0x3: no type has it, and strangers write it


def sized(code: int, content: bytes) -> bytes:
    """Return a value of variable width; `code` is that of the short form."""
    if len(content) < 256:
        return bytes((code, len(content))) + content
    return bytes((code + 0x10,)) + struct.pack(">I", len(content)) + content


def string(told: str) -> bytes:
    return sized(0xA1, told.encode("utf-8", "surrogatepass"))


def symbol(told: str) -> bytes:
    return sized(0xA3, told.encode("utf-8", "surrogatepass"))


def compound(code: int, items: list[bytes]) -> bytes:
    """Return a list (0xd0) or a map (0xd1) in its long form."""
    content = struct.pack(">I", len(items)) + b"".join(items)
    return bytes((code,)) + struct.pack(">I", len(content)) + content


def section(code: int, told: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + told


def end_of(data: bytes, at: int) -> int:
    """Return the offset behind the value that begins at `at`."""
    code = data[at]
    if code == 0:
        return end_of(data, end_of(data, at + 1))
    if (width := _WIDTHS.get(code >> 4)) is not None:
        return at + 1 + width
    if code >> 4 in (0xA, 0xC, 0xE):
        return at + 2 + data[at + 1]
    return at + 5 + int(struct.unpack_from(">I", data, at + 1)[0])


def value(rng: Random) -> bytes:
    """Return a simple value of any type, at the ends of its range more often than not."""
    eight = struct.pack(">Q", rng.choice((0, 1, 2**63 - 1, 2**63, 2**64 - 1, rng.getrandbits(64))))
    times = (0, 1, 253402300799999, 253402300800000, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 62135596800001)
    plain = (
        lambda: rng.choice((b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01")),
        lambda: bytes((rng.choice((0x50, 0x51, 0x52, 0x53, 0x54, 0x55)),)) + eight[:1],
        lambda: bytes((rng.choice((0x60, 0x61)),)) + eight[:2],
        lambda: bytes((rng.choice((0x70, 0x71)),)) + eight[:4],
        lambda: bytes((rng.choice((0x80, 0x81)),)) + eight,
        lambda: b"\x72" + rng.choice((b"\x7f\xc0\0\0", b"\xff\x80\0\0", eight[:4])),
        lambda: b"\x82" + rng.choice((struct.pack(">d", float("nan")), struct.pack(">d", float("inf")), eight)),
        lambda: b"\x73" + struct.pack(">I", rng.choice((65, 0x1B, 0x9B, 0x10FFFF, 0x202E))),
        lambda: b"\x83" + struct.pack(">Q", rng.choice(times)),
        lambda: b"\x98" + rng.randbytes(16),
        lambda: sized(0xA0, rng.randbytes(rng.randrange(60))),
        lambda: symbol(rng.choice(("s", "\x1b[2J", "x" * 300))),
        lambda: string(text(rng)),
        lambda: string(text(rng)),
    )
    return rng.choice(plain)()


def rare(rng: Random) -> bytes:
    """Return a value that application properties should not have: some brokers take it, others end the session."""
    deep = b"\x45"
    for _ in range(rng.choice((2, 40, 300))):
        deep = compound(0xD0, [deep])
    return rng.choice(
        (
            b"\x74\x22\x50\x00\x01",  # decimals
            b"\x84" + rng.randbytes(8),
            b"\x94" + rng.randbytes(16),
            sized(0xA1, rng.choice(INVALID)),
            sized(0xA3, rng.choice(INVALID)),
            b"\x73\x00\x00\xd8\x00",  # half a surrogate
            b"\x73\xff\xff\xff\xff",
            compound(0xD1, [string("a"), compound(0xD0, [value(rng), value(rng)])]),
            compound(0xD1, [compound(0xD0, []), NULL, NULL, NULL]),
            deep,
            b"\xe0\x03\x01\x50\x07",  # an array of one ubyte
            b"\x00\xa3\x03a:b" + value(rng),  # described
        )
    )


def name(rng: Random) -> str:
    return rng.choice(("", "password", "api_key", "x" * 255, "a:b", "\x1b[2J", text(rng), text(rng)))


def parsed(raw: bytes) -> Found:
    """Return the application properties as they stand there, and what the body's sections hold."""
    at, headers, body = 0, [], b""
    while at < len(raw):
        code = raw[at + 2]
        start, end = at + 3, end_of(raw, at)
        if code == APPLICATION:
            headers = _pairs(raw, start)
        elif code == DATA:
            body += raw[end - _length(raw, start) : end]
        elif code in (SEQUENCE, VALUE):
            body += raw[start:end]
        at = end
    return Found(body, tuple(headers), raw)


def _length(raw: bytes, at: int) -> int:
    return raw[at + 1] if raw[at] == 0xA0 else int(struct.unpack_from(">I", raw, at + 1)[0])


def _pairs(raw: bytes, at: int) -> list[tuple[bytes, bytes]]:
    short = raw[at] == 0xC1
    count = raw[at + 2] if short else struct.unpack_from(">I", raw, at + 5)[0]
    at += 3 if short else 9
    found = []
    for _ in range(count // 2):
        middle = end_of(raw, at)
        key = raw[at + (2 if raw[at] in (0xA1, 0xA3) else 5) : middle]
        at = end_of(raw, middle)
        found.append((key, raw[middle:at]))
    return found


class _Reader(proton.Handler):
    """Takes messages as they are: the driver's own reading would stumble."""

    def __init__(self) -> None:
        self.found: list[Found] = []

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            raw = event.link.recv(delivery.pending)
            event.link.advance()
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()
            self.found.append(parsed(bytes(raw)))


class Proton(Carrier):
    """Carries messages to a broker over AMQP 1.0."""

    driver = "proton"
    null_annotations = True

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self._connection: Any = None
        self._witness: Any
        self._used = 0.0
        self._senders: dict[str, Any] = {}

    # -- messages

    def healthy(self, case: str) -> Made:
        body = f"case={case};".encode()
        return Made(case, self._header(True) + section(DATA, sized(0xA0, body)), body, frozenset(), "healthy")

    def message(self, rng: Random, case: str, limits: Limits) -> Made:
        user: list[tuple[str, bytes]] = []
        theirs: list[tuple[str, bytes]] = []
        about = rng.choice(("values", "values", "values", "many", "big", "bare", "rare", "forged", "forged", "forged"))
        if about == "many":
            user = [(f"h{n}", rng.choice((NULL, b"\x41"))) for n in range(rng.choice((1000, 10_000)))]
        elif about == "big":
            user = [("big", sized(0xA1, b"\x1b[2J" * (rng.choice((100, 90_000)) // 4)))]
        elif about == "rare":
            user = [("u0", value(rng)), ("odd", rare(rng))]
        elif about != "bare":
            user = [(f"u{n}", value(rng)) for n in range(rng.randrange(1, 8))]
            user += [(name(rng), value(rng)) for _ in range(rng.randrange(3))]
            user += [("password", string(secret(rng)))] * (rng.random() < 0.2)
        if about == "forged":
            theirs = [(n, string(v) if n in IDS or rng.random() < 0.8 else value(rng)) for n, v in forged(rng).items()]
            marks = ("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_DUPL_ID", "JMSXDeliveryCount", "x-death")
            for mark in rng.sample(marks, 2):
                forms = (string(text(rng)), value(rng))
                if mark == "_AMQ_DUPL_ID":  # an id is shown as it is
                    forms = (string(word(rng)), sized(0xA0, rng.randbytes(9)))
                theirs.append((mark, rng.choice(forms)))
        if limits.too_large and rng.random() < 0.1:
            odd = (sized(0xA1, b"x" * rng.choice((127_990, 131_000, 300_000))), b"\x3f")
            user, about = [("large", rng.choice(odd))], "too large"
        body = body_for(rng, case, limits.largest)
        entries = [*user, *theirs]
        if about != "bare" and rng.random() < 0.8:
            entries.insert(rng.randrange(len(entries) + 1), ("case", string(f"case={case}")))
        if not limits.too_large:
            entries = fitting(entries, FITS, lambda entry: len(string(entry[0])) + len(entry[1]), "case")
        if not limits.too_large:
            entries = list(dict(entries).items())  # a name that comes twice cannot be copied
        names = frozenset(key.encode("utf-8", "surrogatepass") for key, _ in user)
        parts = [self._header(rng.random() < 0.9), self._annotations(rng), self._fields(rng)]
        if about != "bare":
            parts.append(section(APPLICATION, compound(0xD1, [p for n, v in entries for p in (string(n), v)])))
        shape = rng.randrange(8)
        if shape == 0 and len(body) < 60_000:
            parts.append(section(VALUE, sized(0xA1, f"case={case};{text(rng)}".encode("utf-8", "surrogatepass"))))
        elif shape == 1 and len(body) < 60_000:
            parts.append(
                section(VALUE, compound(0xD1, [string("k"), string(f"case={case};"), symbol("n"), value(rng)]))
            )
        elif shape == 2 and len(body) < 60_000:
            parts.append(section(SEQUENCE, compound(0xD0, [string(f"case={case};"), value(rng)])))
        elif shape == 3:
            half = len(body) // 2 if len(body) > 100 else len(body)
            parts += [section(DATA, sized(0xA0, body[:half])), section(DATA, sized(0xA0, body[half:]))]
        else:
            parts.append(section(DATA, sized(0xA0, body)))
        return Made(case, b"".join(parts), body, names, about)

    def _header(self, durable: bool) -> bytes:
        return section(HEADER, compound(0xD0, [b"\x41" if durable else b"\x42"]))

    def _annotations(self, rng: Random) -> bytes:
        if rng.random() < 0.6:
            return b""
        names = ("x-opt-mine", "x-opt-\x1b[2J", "x-opt-ORIG-ADDRESS", "x-opt-ORIG-QUEUE", "x-opt-redeliver_failures")
        pairs = [(n, rng.choice((string(text(rng)), value(rng)))) for n in rng.sample(names, rng.randrange(1, 3))]
        pairs = [(n, v) for n, v in pairs if v != NULL or self.null_annotations]
        return section(ANNOTATIONS, compound(0xD1, [part for n, v in pairs for part in (symbol(n), v)]))

    def _fields(self, rng: Random) -> bytes:
        def maybe(*made: bytes) -> bytes:
            return rng.choice(made) if rng.random() < 0.4 else NULL

        ids = (
            string(word(rng)),
            b"\x80" + rng.randbytes(8),
            b"\x98" + rng.randbytes(16),
            sized(0xA0, rng.randbytes(9)),
        )
        times = (b"\x83" + struct.pack(">Q", rng.choice((0, 1, 253402300800000, 2**63 - 1, 2**63, 2**64 - 1))),)
        fields = [
            maybe(*ids),
            NULL,  # user id
            NULL,  # to
            maybe(string(word(rng))),
            maybe(string(word(rng))),
            maybe(*ids),
            maybe(symbol("application/json"), symbol("\x1b[2J"), symbol("text/plain; charset=\xff")),
            maybe(symbol("gzip"), symbol("\x1b]0;x\x07")),
            NULL,  # when it expires
            maybe(*times),
            maybe(string(word(rng))),
            maybe(b"\x70\xff\xff\xff\xff"),
            maybe(string(word(rng))),
        ]
        return section(FIELDS, compound(0xD0, fields))

    def readable(self, made: Made) -> bool:
        try:
            proton.Message().decode(made.wire)
        except Exception:
            return False
        return True

    def parked(self, row: Parked) -> Found:
        """Return a parked message as the limbo keeps it.

        The limbo keeps the sections as they came: a body that is no data has no other form.
        """
        assert row.wire is not None
        return parsed(row.wire)

    # -- links

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Ask the management, and once more on a new connection, as the broker ends an idle one."""
        try:
            return question()
        except (proton.ProtonException, OSError):
            self._witness.close()
            return question()

    def _target(self, queue: str) -> str:
        return queue

    def send(self, queue: str, made: Made) -> str:
        try:
            connection = self._fresh()
            if queue not in self._senders:
                self._senders[queue] = connection.create_sender(self._target(queue), name=uuid.uuid4().hex)
            link = self._senders[queue].link
            delivery = link.delivery(uuid.uuid4().hex[:16])
            link.stream(made.wire)
            link.advance()
            ended = proton.Endpoint.REMOTE_CLOSED
            connection.wait(lambda: delivery.settled or delivery.remote_state or link.session.state & ended, timeout=30)
            if link.session.state & ended:
                raise ConnectionError(str(link.session.remote_condition))
            state = delivery.remote_state
            delivery.settle()
        except (proton.ProtonException, OSError) as error:
            self._drop()
            return f"{type(error).__name__}: {error}"[:200]
        return "" if state == proton.Delivery.ACCEPTED else f"its outcome is {state}"

    def take(self, queue: str) -> list[Found]:
        reader, in_vain = _Reader(), 0
        while (depth := self.depth(queue)) and in_vain < 5:
            before = len(reader.found)
            connection = self._fresh()
            receiver = connection.create_receiver(
                self._target(queue), credit=depth, handler=reader, name=uuid.uuid4().hex
            )
            with contextlib.suppress(proton.Timeout):
                connection.wait(lambda wanted=before + depth: len(reader.found) >= wanted, timeout=3)
            receiver.close()
            in_vain += len(reader.found) == before
        return reader.found

    @contextlib.contextmanager
    def dropin(self, queue: str, handle: Handle, options: Mapping[str, Any]) -> Iterator[None]:
        consumer = _Consumer(self, self._target(queue), handle)
        container = proton.reactor.Container(redelivering(consumer, settle="return", **options))
        thread = threading.Thread(target=container.run, name="dropin")
        thread.start()
        consumer.ready.wait(20)
        try:
            yield
        finally:
            consumer.over.set()
            thread.join(20)

    def _fresh(self) -> Any:
        """Return the connection, or a new one where it has been idle: the broker may have ended it."""
        if time.monotonic() - self._used > 10:
            self._drop()
        self._used = time.monotonic()
        return self._open()

    def _open(self) -> Any:
        if self._connection is None:
            b = self.broker
            url = f"amqp://{b.host}:{b.port}"
            self._connection = plain_connection(
                url, timeout=30, user=b.user, password=b.password, allowed_mechs="PLAIN"
            )
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._senders.clear()
        if connection is not None:
            connection.timeout = 1.0  # a broker that has ended the session may never say goodbye
            with contextlib.suppress(Exception):
                connection.close()

    def close(self) -> None:
        self._drop()


class _Consumer(MessagingHandler):
    """Consumes as a user's handler that is written like the driver's examples."""

    def __init__(self, carrier: Proton, address: str, handle: Handle) -> None:
        super().__init__(prefetch=50)
        self._carrier, self._address, self._handle = carrier, address, handle
        self.ready, self.over = threading.Event(), threading.Event()

    def on_start(self, event: Any) -> None:
        b = self._carrier.broker
        url = f"amqp://{b.host}:{b.port}"
        self._connection = event.container.connect(url, user=b.user, password=b.password, allowed_mechs="PLAIN")
        event.container.create_receiver(self._connection, self._address)
        event.container.schedule(0.05, self)

    def on_link_opened(self, event: Any) -> None:
        self.ready.set()

    def on_timer_task(self, event: Any) -> None:
        if self.over.is_set():
            self._connection.close()
        else:
            event.container.schedule(0.05, self)

    def on_message(self, event: Any) -> None:
        message = event.message
        body = message.body
        seen = bytes(body) if isinstance(body, bytes | memoryview) else str(body).encode("utf-8", "replace")
        self._handle(seen + str((message.properties or {}).get("case", "")).encode("utf-8", "replace"))


class Artemis(Proton):
    """Carries messages to Artemis, whose management makes, and counts, the queues."""

    scheme = "artemis"

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self._witness = Witness(broker)

    def make(self, queue: str, rng: Random) -> None:
        self._ask(lambda: self._witness.create(queue))

    def delete(self, queue: str) -> None:
        self._ask(lambda: self._witness.ask("broker", "destroyQueue", queue, True, True))

    def depth(self, queue: str) -> int:
        return self._ask(lambda: self._witness.depth(queue))

    def close(self) -> None:
        super().close()
        self._witness.close()


class RabbitProton(Proton):
    """Carries messages to RabbitMQ 4.3 over AMQP 1.0."""

    scheme = "rabbitmq+proton"
    has_dropin = False  # it is refused there
    # RabbitMQ 4.3.6 takes such a message, and then ends the session of each consumer that it gives the message to.
    null_annotations = False

    def __init__(self, broker: Any) -> None:
        super().__init__(broker)
        self._witness = RabbitWitness(broker)

    def _target(self, queue: str) -> str:
        return path(queue)

    def make(self, queue: str, rng: Random) -> None:
        self._ask(lambda: self._witness.declare(queue, {"x-queue-type": "quorum"}))

    def delete(self, queue: str) -> None:
        self._ask(lambda: self._witness.delete(queue))

    def depth(self, queue: str) -> int:
        found = self._ask(lambda: self._witness.queue(queue))
        return int(found["message_count"]) if found else 0

    def close(self) -> None:
        super().close()
        self._witness.close()
