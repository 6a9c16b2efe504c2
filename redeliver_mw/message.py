# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a handler gets and what goes out: `Destination`, `Delivery`, `Outgoing`. No broker's terms.

A `Delivery` is a slotted handle over the driver's own message: it is made with one allocation, and its body and headers
are read on first use through the adapter's `MessageReader`, of which there is one per dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

from .errors import ConfigError

__all__ = [
    "Attempt",
    "Checking",
    "Death",
    "Delivery",
    "Destination",
    "DestinationKind",
    "HeaderType",
    "Identity",
    "MessageReader",
    "Outgoing",
    "Past",
    "Properties",
    "SupportsIdentity",
    "SupportsImages",
    "SupportsPacking",
    "register_header_constant",
    "register_header_types",
]

DestinationKind = Literal["queue", "topic"]


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """Names a queue or a topic without any broker's prefix, or one durable subscription to a topic.

    A message sent to a topic reaches all of the topic's subscriptions. A message sent to a destination with a
    `subscription` reaches that subscription alone, as a retry copy and a replay must.
    """

    name: str
    kind: DestinationKind = "queue"
    subscription: str = ""

    @classmethod
    def parse(cls, text: str | Destination) -> Destination:
        """Parse the text form of a destination.

        `"orders"` and `"queue:orders"` are the queue, `"topic:prices"` is the topic, and `"topic:prices::audit"` is the
        topic's subscription *audit*. Raises ConfigError for any other text.
        """
        if isinstance(text, Destination):
            return text
        if not isinstance(text, str):
            raise ConfigError(
                f"{text!r:.200} names no destination",
                cure="Give a text: a name, `queue:NAME` or `topic:NAME`",
                code="destination-name",
            )
        head, colon, rest = text.partition(":")
        kind: DestinationKind = "topic" if colon and head == "topic" else "queue"
        name = rest if colon and head in ("queue", "topic") else text
        name, _, subscription = name.partition("::") if kind == "topic" else (name, "", "")
        if not name or name != name.strip() or subscription != subscription.strip():
            raise ConfigError(
                f"{text!r} names no destination",
                cure="Write a name, `queue:NAME` or `topic:NAME`",
                code="destination-name",
            )
        return cls(name, kind, subscription)

    @property
    def full_name(self) -> str:
        """Return the name, followed by two colons and the subscription if there is one."""
        return f"{self.name}::{self.subscription}" if self.subscription else self.name

    @property
    def short(self) -> str:
        """Return the shortest form that `parse` reads: the bare name of a queue wherever that is unambiguous."""
        plain = self.kind == "queue" and not self.name.startswith(("queue:", "topic:"))
        return self.name if plain else str(self)

    def __str__(self) -> str:
        return f"{self.kind}:{self.full_name}"


@dataclass(frozen=True, slots=True)
class Properties:
    """Holds the standard properties that a copy keeps; a property is None if the message does not have it.

    Values are the driver's own where brokers differ (a correlation id may be text, bytes or a UUID). `timestamp_us` and
    `expires_at_us` are microseconds since 1970, UTC; `ttl_us` is the time to live that a producer gave, in
    microseconds, for brokers that do not report when that time began.
    """

    message_id: object = None
    correlation_id: object = None
    timestamp_us: int | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    reply_to: object = None
    type: str | None = None
    priority: int | None = None
    group_id: str | None = None
    app_id: str | None = None
    user_id: str | None = None
    expires_at_us: int | None = None
    ttl_us: int | None = None
    persistent: bool | None = None  # as the producer sent the message; every copy is persistent


@dataclass(frozen=True, slots=True)
class Death:
    """Holds what a broker wrote on a message that it dead-lettered itself: the message's source, and why."""

    source: Destination
    reason: str = ""  # the broker's own word; empty if the broker gives none
    # microseconds since 1970, UTC, as exact as the broker reports; None if the broker does not
    at_us: int | None = None
    count: int = 0  # how often the broker dead-lettered it there for this reason; 0 if the broker does not count


class MessageReader(Protocol):
    """Reads the messages of an adapter's driver. Stateless. Called from any thread."""

    def body(self, native: Any, /) -> bytes:
        """Return the body, byte for byte."""

    def headers(self, native: Any, /) -> dict[str, Any]:
        """Return the headers as the driver's own values; a new dict at each call."""

    def headers_bytes(self, native: Any, /) -> int:
        """Return the size of the headers on the wire, in bytes, for the header budget."""

    def properties(self, native: Any, /) -> Properties:
        """Return the properties; None for each one that the message does not have."""

    def route(self, native: Any, /) -> Mapping[str, str]:
        """Return how the message was sent: `exchange`, `routing_key` and `topic`, as far as they are known."""

    def marked(self, native: Any, /) -> bool:
        """Return whether the message may carry a header of ours. Cheap; a wrong yes is harmless."""

    def death(self, native: Any, /) -> Death | None:
        """Return the broker's own marks on a message that the broker dead-lettered; None if there are none."""


class Identity(NamedTuple):
    """Identifies a message without history. All fields have the same meaning as in `Properties`."""

    message_id: object = None
    timestamp_us: int | None = None
    group_id: str | None = None


@runtime_checkable
class SupportsIdentity(Protocol):
    """Marks a reader that finds these three fields without reading all properties: they are read for every message."""

    def identity(self, native: Any, /) -> Identity:
        """Return the three fields, as `properties` would."""


@runtime_checkable
class SupportsTextLookup(Protocol):
    """Marks a reader that finds single texts without reading the whole message: tracing asks for every message."""

    def header_text(self, native: Any, name: str, /) -> str | None:
        """Return the header as text; None if the message does not have it, or it is no text.

        The name is ASCII, of at most 128 characters. A header of that name inside a nested table may be found as well.
        """

    def correlation_id(self, native: Any, /) -> object:
        """Return the correlation id, as `properties` would."""


@runtime_checkable
class SupportsTwins(Protocol):
    """Marks a reader that quickly finds what identical messages have in common.

    It is asked about every message without an id where counts survive a crash.
    """

    def twin(self, native: Any, /) -> tuple[bytes, Mapping[str, Any]]:
        """Return everything but body and headers as bytes, and the headers."""


@runtime_checkable
class SupportsAnnotations(Protocol):
    """Marks a reader whose broker turns some headers of a message into annotations, which are no headers here.

    Observed on RabbitMQ 4.3: over AMQP 1.0, headers with names that begin with `x-` are annotations.
    """

    def annotations(self, native: Any, /) -> Mapping[str, Any]:
        """Return those annotations."""


@runtime_checkable
class SupportsImages(Protocol):
    """Marks a reader whose copies need more of the original than `Outgoing` holds, and that stores it as bytes."""

    def image(self, native: Any, /) -> bytes:
        """Return as bytes what a copy needs of the original beside its `Outgoing`."""

    def native(self, image: bytes, /) -> Any:
        """Return a native message that is equivalent to the one of which the image was made."""


@runtime_checkable
class SupportsPacking(Protocol):
    """Marks a reader that can put messages into bytes and restore them exactly, even in another process."""

    def pack(self, native: Any, /) -> bytes:
        """Return the whole message as bytes, except for a body that equals `body`."""

    def unpack(self, packed: bytes, body: bytes, /) -> Any:
        """Return the native message again. Raises ValueError if `packed` is no packed message.

        `body`: as it was read.
        """


KEPT_ATTEMPTS = 10  # in the history of a message

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_PROPERTIES = Properties()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@runtime_checkable
class Checking(Protocol):
    """Marks a reader that knows what its driver can send."""

    def unsendable(self, out: Outgoing, /) -> str:
        """Return why the message can never be sent; empty if no reason is known."""


class RunOutbox(Protocol):
    """Takes what a handler sends during one run: one of the outboxes of `redelivery.outbox`."""

    def send(
        self,
        delivery: Delivery,
        destination: str | Destination,
        body: bytes | str,
        headers: Mapping[str, Any] | None,
        after: float,
        properties: Mapping[str, Any],
        /,
    ) -> None:
        """Keep a message until the run has succeeded. Raises ConfigError if it can never be sent, or comes too late."""


class AttemptPlan(Protocol):
    """Holds what was valid for a source when an attempt began: `redelivery.plan.attempt_plan` returns all of it."""

    @property
    def source(self) -> Destination: ...


class Delivery:
    """Holds one transfer of a message from the broker to us.

    A delivery is made by an adapter and read by handlers. A handler may keep strings in `state` between attempts.
    Reading is safe from any thread; `state` belongs to the handler's thread.
    """

    __slots__ = (
        "_body",
        "_headers",
        "_identity",
        "_past",
        "_properties",
        "destination",
        "failures",
        "generation",
        "in_line",
        "known",
        "native",
        "outbox",
        "own_key",
        "plan",
        "reader",
        "redelivered",
        "tag",
        "trace",
    )

    def __init__(
        self, destination: Destination, generation: int, tag: Any, redelivered: bool, native: Any, reader: MessageReader
    ) -> None:
        """Hold a message that was delivered. Called by adapters.

        `tag` is the driver's handle for settling it, valid only within its `generation`; `redelivered` is the broker's
        own mark, which is a hint and no count; `reader` reads `native`, the driver's own message.
        """
        self.destination = destination  # the source
        self.generation = generation  # of the channel, subscription or link that delivered the message
        self.tag = tag  # the driver's handle for settling the delivery, valid only within its generation
        self.redelivered = redelivered  # the broker's own mark: a hint, not a count
        self.native = native  # the driver's own message
        self.reader = reader
        self.failures = 0  # F before this run
        self.own_key: str | None = None  # the result of `identity.own_key`, once that was called
        self.known = False  # the interceptor tracks this delivery
        self.in_line = False  # other messages of its key wait for this one, or this one for them
        self.trace = ""  # the span of its last attempt here, as `Past.trace`; empty if that has none
        self.outbox: RunOutbox | None = None  # the outbox of the current run; None if there was no run
        self.plan: AttemptPlan | None = (
            None  # the plan of its source when the last attempt began; None if there was none
        )
        self._body: bytes | None = None
        self._headers: dict[str, Any] | None = None
        self._properties: Properties | None = None
        self._past: Past | None = None
        self._identity: Identity | None = None

    @property
    def body(self) -> bytes:
        """Return the body, byte for byte."""
        if self._body is None:
            self._body = self.reader.body(self.native)
        return self._body

    @property
    def text(self) -> str:
        """Return the body as UTF-8 text.

        Raises UnicodeDecodeError (a failure of the handler) if the body is not UTF-8.
        """
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """Return the body parsed as JSON. Raises ValueError if the body is not JSON."""
        return json.loads(self.body)

    @property
    def headers(self) -> dict[str, Any]:
        """Return the headers or application properties, in the driver's types."""
        if self._headers is None:
            self._headers = self.reader.headers(self.native)
        return self._headers

    @property
    def properties(self) -> Properties:
        """Return the standard properties."""
        if self._properties is None:
            self._properties = self.reader.properties(self.native)
        return self._properties

    @property
    def identity(self) -> Identity:
        """Return what identifies the message, read with `SupportsIdentity` if the adapter has that."""
        if self._identity is None:
            self._identity = self._identified()
        return self._identity

    def _identified(self) -> Identity:
        known = self._properties
        if known is None and _identifies(type(self.reader)):
            return cast(SupportsIdentity, self.reader).identity(self.native)
        known = self.properties
        return Identity(known.message_id, known.timestamp_us, known.group_id)

    @property
    def message_id(self) -> str | None:
        """Return the producer's or the broker's message id as text, or None."""
        return text_of(self.identity.message_id)

    @property
    def correlation_id(self) -> str | None:
        """Return the producer's correlation id as text, or None."""
        if self._properties is None and finds_texts(type(self.reader)):
            return text_of(cast(SupportsTextLookup, self.reader).correlation_id(self.native))
        return text_of(self.properties.correlation_id)

    @property
    def delivery_count(self) -> int:
        """Return JMSXDeliveryCount: 1 on the first delivery, then `failures` + 1."""
        return self.failures + 1

    @property
    def past(self) -> Past:
        """Return what is known of earlier attempts; a fresh value for a message without any."""
        if self._past is None:
            self._past = Past()
        return self._past

    @past.setter
    def past(self, past: Past) -> None:
        self._past = past

    @property
    def first_failed_at(self) -> datetime | None:
        """Return when a handler first failed on this message, UTC; None before the first failure."""
        us = self._past.first_failed_us if self._past else None
        return None if us is None else _EPOCH + timedelta(microseconds=us)  # exact, up to the last representable day

    @property
    def last_error(self) -> str | None:
        """Return `Type: message` of the last failure, redacted and trimmed; None before the first failure."""
        return self._past.last_error if self._past else None

    @property
    def state(self) -> dict[str, str]:
        """Return the strings that the handler keeps between attempts: at most 1 KiB as JSON in a copy."""
        return self.past.state

    def send(
        self,
        destination: str | Destination,
        body: bytes | str,
        headers: Mapping[str, Any] | None = None,
        *,
        after: float = 0.0,
        **properties: Any,
    ) -> None:
        """Send a durable message if, and only if, the handler succeeds, together with the settlement of this delivery.

        A str is encoded as UTF-8. `after`: seconds from the handler's success to the sending. `properties`: those of
        `Properties` that a producer sets. Raises ConfigError for a message that can never be sent, and outside of a
        handler's run. Thread-safe.
        """
        if self.outbox is None:
            raise ConfigError(
                "Delivery.send works only while a handler has the delivery",
                where=str(self.destination),
                cure="Call it while its handler, callback or block runs; elsewhere publish yourself",
                code="send-not-possible",
            )
        self.outbox.send(self, destination, body, headers, after, properties)

    def __repr__(self) -> str:
        return f"<Delivery {self.destination} #{self.delivery_count} tag={self.tag!r}>"


class Attempt(NamedTuple):
    """Holds one failed attempt, as it is recorded on copies."""

    at_us: int  # when the attempt failed, since 1970, UTC
    fingerprint: str
    host: str
    delay: float | None  # seconds of delay that followed; None if none followed


@dataclass(slots=True)
class Past:
    """Holds what the headers of a copy and the ledger record about a message.

    Times are microseconds since 1970, UTC.
    """

    lineage: str = ""  # empty before the first copy
    generation: int = 0  # how often the message has been replayed
    hop: int = 0  # how many copies led to this one
    failures: int = 0
    not_before_us: int | None = None
    expires_at_us: int | None = None
    first_attempt_us: int | None = None
    first_failed_us: int | None = None
    last_failed_us: int | None = None
    last_error: str | None = None
    replay_id: str | None = None
    state: dict[str, str] = field(default_factory=dict)
    history: tuple[Attempt, ...] = ()  # the last KEPT_ATTEMPTS, oldest first
    original: Mapping[str, str] = field(default_factory=lambda: _NONE)  # `redeliver_original_*` as first read
    trace: str = ""  # the span of the last attempt that has one, in the form of W3C's `traceparent`

    def count_failure(self, at_us: int, ran: float, error: str, ttl_us: int | None, *, counted: bool = True) -> None:
        """Note that the message has failed at `at_us`, after `ran` seconds.

        `ttl_us`: the time to live that its producer gave. Without `counted`, the handler only asked for a delay.
        """
        first = at_us - round(ran * 1e6)
        self.failures += counted
        self.first_attempt_us = self.first_attempt_us or first
        if self.expires_at_us is None and ttl_us is not None:
            self.expires_at_us = first + ttl_us  # at the latest: how long the message was in its queue is unknown
        if counted:
            self.first_failed_us = self.first_failed_us or at_us
        self.last_failed_us = at_us
        self.last_error = error

    def add_attempt(self, at_us: int, fingerprint: str, host: str) -> None:
        """Add an attempt that has failed at `at_us` to the history."""
        self.history = (*self.history, Attempt(at_us, fingerprint, host, None))[-KEPT_ATTEMPTS:]

    def add_delay(self, delay: float) -> None:
        """Add a delay of so many seconds after the last attempt of the history."""
        if self.history:
            self.history = (*self.history[:-1], self.history[-1]._replace(delay=delay))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Holds a copy, or a message that a handler sends, on its way to `target`.

    Durable; `body` is sent byte for byte.
    """

    target: Destination
    body: bytes
    headers: Mapping[str, Any]
    properties: Properties = _NO_PROPERTIES
    copy_id: str = ""  # empty for a message that is not a copy
    origin: Delivery | None = None  # the delivery that this is a copy of
    # the delivery whose handler sent this message; the message is not a copy of that delivery
    cause: Delivery | None = None
    # the same for every try of this message, also after a crash; different for any other with its copy id
    duplicate_salt: str = ""

    @property
    def settles(self) -> Delivery | None:
        """Return the delivery that is settled once this message is confirmed, or None."""
        return self.origin or self.cause

    @property
    def generation(self) -> int | None:
        """Return the generation of that delivery; once the generation is over, sending this message is of no use."""
        settles = self.settles
        return None if settles is None else settles.generation


def text_of(value: object) -> str | None:
    """Return an id as text, whatever type its driver uses for it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


@cache
def _identifies(reader: type[MessageReader]) -> bool:
    """Return whether a reader class supports `SupportsIdentity`.

    Cached: a protocol check takes longer than reading a message.
    """
    return issubclass(reader, SupportsIdentity)


@cache
def finds_texts(reader: type[MessageReader]) -> bool:
    """Return whether a reader class supports `SupportsTextLookup`. Cached, as above."""
    return issubclass(reader, SupportsTextLookup)


# -- header types of drivers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeaderType:
    """Describes a driver's own type of header value, so that its values can be stored outside of a broker.

    `name` stands in databases and therefore never changes; it begins with the protocol, such as `amqp091/integer`. A
    value is stored as its nearest Python type (`kind` derives from str, int, float, bytes, list, dict, or from none of
    them) together with those of the `attributes` that it has. `plain` returns the nearest value of Python's own types,
    for display; without it, the value of the base class is displayed.
    """

    name: str
    kind: type
    attributes: tuple[str, ...] = ()
    plain: Callable[[Any], Any] | None = None


_TYPES_BY_NAME: dict[str, HeaderType] = {}
_TYPES_BY_KIND: dict[type, HeaderType] = {}
_CONSTANTS: dict[str, object] = {}


def register_header_types(*types: HeaderType) -> None:
    """Register types of header values under their names. An adapter calls this when it is imported.

    Raises ValueError if a name, or a class, is registered already for another.
    """
    for one in types:
        if _TYPES_BY_NAME.get(one.name, one) != one or _TYPES_BY_KIND.get(one.kind, one) != one:
            raise ValueError(f"the header type {one.name} or the class {one.kind.__name__} is registered already")
        _TYPES_BY_NAME[one.name] = _TYPES_BY_KIND[one.kind] = one


def register_header_constant(name: str, value: object) -> None:
    """Register a value that a driver recognises by its identity under a name.

    Raises ValueError if the name is registered already for another value.
    """
    if _CONSTANTS.setdefault(name, value) is not value:
        raise ValueError(f"the header constant {name} is registered already")


def header_type(kind: type) -> HeaderType | None:
    """Return the registered type of a class, or None."""
    return _TYPES_BY_KIND.get(kind)


def header_type_named(name: str) -> HeaderType | None:
    """Return the type that is registered under a name, or None if no adapter in this process has done so."""
    return _TYPES_BY_NAME.get(name)


def header_constant(name: str) -> object | None:
    """Return the constant that is registered under a name, or None."""
    return _CONSTANTS.get(name)


def name_of_constant(value: object) -> str | None:
    """Return the name of a registered constant, or None for any other value."""
    return next((name for name, known in _CONSTANTS.items() if known is value), None)
