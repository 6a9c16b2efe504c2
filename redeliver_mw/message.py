# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a handler gets, and what goes out: `Destination`, `Delivery`, `Outgoing`. No broker words.

A `Delivery` is a slotted handle over the driver's own message: it is made with one allocation, and its
body and headers are read on first use through the adapter's `MessageReader`, of which there is one per dialect.
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
    """A queue or topic by name, without any broker's prefix; or one durable subscription to a topic.

    What goes to a topic reaches all of its subscriptions; what goes to a destination with a `subscription`
    reaches that one alone, as a retry copy and a replay must.
    """

    name: str
    kind: DestinationKind = "queue"
    subscription: str = ""

    def __hash__(self) -> int:
        # It is looked up several times for each message, and nearly always the name alone tells it from others.
        return hash(self.name)

    @classmethod
    def parse(cls, text: str | Destination) -> Destination:
        """`"orders"` and `"queue:orders"` are the queue, `"topic:prices"` the topic, `"topic:prices::audit"` its
        subscription *audit*. ConfigError otherwise."""
        if isinstance(text, Destination):
            return text
        head, colon, rest = text.partition(":")
        kind: DestinationKind = "topic" if colon and head == "topic" else "queue"
        name = rest if colon and head in ("queue", "topic") else text
        name, _, subscription = name.partition("::") if kind == "topic" else (name, "", "")
        if not name or name != name.strip() or subscription != subscription.strip():
            raise ConfigError(f"{text!r} names no destination", cure="Write a name, `queue:NAME` or `topic:NAME`")
        return cls(name, kind, subscription)

    @property
    def full_name(self) -> str:
        """The name, and behind two colons the subscription where there is one."""
        return f"{self.name}::{self.subscription}" if self.subscription else self.name

    @property
    def short(self) -> str:
        """As short as `parse` reads it: the bare name of a queue, wherever that will do."""
        plain = self.kind == "queue" and not self.name.startswith(("queue:", "topic:"))
        return self.name if plain else str(self)

    def __str__(self) -> str:
        return f"{self.kind}:{self.full_name}"


@dataclass(frozen=True, slots=True)
class Properties:
    """The standard properties that a copy keeps; None where the message has none.

    Values are the driver's own where brokers differ (a correlation id may be text, bytes or a UUID).
    `timestamp_us` and `expires_at_us` are microseconds since 1970, UTC; `ttl_us` is what a producer gave where
    the broker does not say when that began.
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
    persistent: bool | None = None  # as its sender sent it; every copy is


@dataclass(frozen=True, slots=True)
class Death:
    """What a broker wrote on a message that it dead-lettered itself: where it was consumed from, and why."""

    source: Destination
    reason: str = ""  # the broker's own word; empty where it says nothing
    at_us: int | None = None  # microseconds since 1970, UTC, as exact as the broker tells; None: it does not
    count: int = 0  # how often it died there, for this reason; 0: the broker does not count


class MessageReader(Protocol):
    """How an adapter reads its driver's message. Stateless; called from any thread."""

    def body(self, native: Any, /) -> bytes: ...
    def headers(self, native: Any, /) -> dict[str, Any]: ...
    def headers_bytes(self, native: Any, /) -> int: ...  # on the wire, for the header budget
    def properties(self, native: Any, /) -> Properties: ...
    def route(self, native: Any, /) -> Mapping[str, str]: ...  # `exchange`, `routing_key`, `topic`, as far as known
    def marked(self, native: Any, /) -> bool: ...  # may it carry a header of ours? cheap; a wrong yes is harmless
    def death(self, native: Any, /) -> Death | None: ...  # what the broker's own marks say, when it dead-lettered it


class Identity(NamedTuple):
    """By what a message is known that has no past: as in `Properties`, where all of these stand, too."""

    message_id: object = None
    timestamp_us: int | None = None
    group_id: str | None = None


@runtime_checkable
class SupportsIdentity(Protocol):
    """A reader that finds these three without reading all properties: they are asked of every message."""

    def identity(self, native: Any, /) -> Identity: ...


@runtime_checkable
class SupportsTwins(Protocol):
    """A reader that tells quickly what identical messages have in common: it is asked of every message without an id
    where counts survive a crash.
    """

    def twin(self, native: Any, /) -> tuple[bytes, Mapping[str, Any]]: ...  # all but body and headers, and the headers


@runtime_checkable
class SupportsImages(Protocol):
    """A reader whose copies need more of their original than `Outgoing` says, and which can put that into bytes."""

    def image(self, native: Any, /) -> bytes: ...
    def native(self, image: bytes, /) -> Any: ...  # as good as the one that the image was made of


@runtime_checkable
class SupportsPacking(Protocol):
    """A reader whose messages can be put into bytes and be had again, exactly, in another process, at another time."""

    def pack(self, native: Any, /) -> bytes: ...  # all of it, but for the body where that is the same as `body`
    def unpack(self, packed: bytes, body: bytes, /) -> Any: ...  # `body` as it was read; ValueError for what is none


_NONE: Mapping[str, str] = MappingProxyType({})
_NO_PROPERTIES = Properties()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@runtime_checkable
class Checking(Protocol):
    """A reader that knows what its driver can send."""

    def unsendable(self, out: Outgoing, /) -> str: ...  # why it could never go out; empty: nothing is known against it


class Delivery:
    """One hand-over of a message to us.

    Made by an adapter, read by handlers. A handler may keep strings in `state` between attempts.
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
    )

    def __init__(
        self, destination: Destination, generation: int, tag: Any, redelivered: bool, native: Any, reader: MessageReader
    ) -> None:
        self.destination = destination  # the source it was consumed from
        self.generation = generation  # of the channel, subscription or link it came through
        self.tag = tag  # the driver's handle for settling it, good within its generation only
        self.redelivered = redelivered  # the broker's own mark: a hint, not a count
        self.native = native  # the driver's own message
        self.reader = reader
        self.failures = 0  # F before this run
        self.own_key: str | None = None  # `counting.own_key`, once it was asked for
        self.known = False  # the interceptor has a story of it
        self.in_line = False  # others of its key wait for it, or it for them
        self.outbox: Any = None  # of the run that it is in; None: there was none
        self.plan: Any = None  # what held for its source when its last attempt began; None: there was none
        self._body: bytes | None = None
        self._headers: dict[str, Any] | None = None
        self._properties: Properties | None = None
        self._past: Past | None = None
        self._identity: Identity | None = None

    @property
    def body(self) -> bytes:
        """The body, byte for byte."""
        if self._body is None:
            self._body = self.reader.body(self.native)
        return self._body

    @property
    def text(self) -> str:
        """The body as UTF-8; UnicodeDecodeError (a failure of the handler) where it is not."""
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """The body as JSON; ValueError where it is not."""
        return json.loads(self.body)

    @property
    def headers(self) -> dict[str, Any]:
        """Headers or application properties, in the driver's types."""
        if self._headers is None:
            self._headers = self.reader.headers(self.native)
        return self._headers

    @property
    def properties(self) -> Properties:
        """The standard properties."""
        if self._properties is None:
            self._properties = self.reader.properties(self.native)
        return self._properties

    @property
    def identity(self) -> Identity:
        """By what it is known, read the short way where its adapter has one."""
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
        """The producer's or broker's id, as text."""
        return text_of(self.identity.message_id)

    @property
    def correlation_id(self) -> str | None:
        return text_of(self.properties.correlation_id)

    @property
    def delivery_count(self) -> int:
        """JMSXDeliveryCount: 1 on the first delivery, then `failures` + 1."""
        return self.failures + 1

    @property
    def past(self) -> Past:
        """What is known of earlier attempts; a fresh one for a message that has none."""
        if self._past is None:
            self._past = Past()
        return self._past

    @past.setter
    def past(self, past: Past) -> None:
        self._past = past

    @property
    def first_failed_at(self) -> datetime | None:
        """When a handler failed on this message first, UTC; None before that."""
        us = self._past.first_failed_us if self._past else None
        return None if us is None else _EPOCH + timedelta(microseconds=us)  # exact, up to the last day of all

    @property
    def last_error(self) -> str | None:
        """`Type: message` of the last failure, redacted and trimmed; None before that."""
        return self._past.last_error if self._past else None

    @property
    def state(self) -> dict[str, str]:
        """Strings that the handler keeps between attempts: at most 1 KiB as JSON once the message is copied."""
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
        """Send a durable message if, and only if, the handler succeeds: together with the settling of this one.

        A str goes out as UTF-8. `after`: seconds from the handler's success on. `properties` as in `Properties`, those
        that a sender sets. ConfigError for what can never be sent, and outside of a handler's run. Any thread.
        """
        if self.outbox is None:
            raise ConfigError(
                "Delivery.send works only while a handler has the delivery",
                where=str(self.destination),
                cure="Call it while its handler, callback or block runs; elsewhere publish yourself",
            )
        self.outbox.send(self, destination, body, headers, after, properties)

    def __repr__(self) -> str:
        return f"<Delivery {self.destination} #{self.delivery_count} tag={self.tag!r}>"


class Attempt(NamedTuple):
    """One failed attempt, as copies tell of it."""

    at_us: int  # when it failed, since 1970, UTC
    fingerprint: str
    host: str
    delay: float | None  # seconds of rest that followed; None: none did


@dataclass(slots=True)
class Past:
    """What the headers of a copy and the ledger tell about a message; times are microseconds, UTC."""

    lineage: str = ""  # empty before the first copy
    generation: int = 0  # how often it has been replayed
    hop: int = 0  # how many copies lead to it
    failures: int = 0
    not_before_us: int | None = None
    expires_at_us: int | None = None
    first_attempt_us: int | None = None
    first_failed_us: int | None = None
    last_failed_us: int | None = None
    last_error: str | None = None
    replay_id: str | None = None
    state: dict[str, str] = field(default_factory=dict)
    history: tuple[Attempt, ...] = ()  # the last ten, oldest first
    original: Mapping[str, str] = field(default_factory=lambda: _NONE)  # `redeliver_original_*` as first seen


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A copy, or a message of the user's, on its way to `target`. Durable; `body` goes out byte for byte."""

    target: Destination
    body: bytes
    headers: Mapping[str, Any]
    properties: Properties = _NO_PROPERTIES
    copy_id: str = ""  # empty for a message that is no copy
    origin: Delivery | None = None  # of which it is a copy
    cause: Delivery | None = None  # whose handler sent it: it is no copy of that
    duplicate_salt: str = ""  # the same on every try of this one, after a crash too; no other of its copy id has it

    @property
    def settles(self) -> Delivery | None:
        """The delivery that is settled once this is confirmed."""
        return self.origin or self.cause

    @property
    def generation(self) -> int | None:
        """Of that delivery: without it there is no use in sending this."""
        settles = self.settles
        return None if settles is None else settles.generation


def text_of(value: object) -> str | None:
    """An id, whatever type its driver has for it, as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


@cache
def _identifies(reader: type[MessageReader]) -> bool:
    """Asked once: asking a protocol takes longer than to read a message."""
    return issubclass(reader, SupportsIdentity)


# -- header types of drivers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeaderType:
    """Describes a driver's own type of header value, so that values of it can be stored outside of a broker.

    `name` stands in databases and therefore never changes; it begins with the protocol, such as `amqp091/integer`.
    A value is stored as what it is to Python (`kind` derives from str, int, float, bytes, list, dict, or from none of
    them) together with those of the `attributes` that it has. `plain` returns the nearest value of Python's own types,
    for display; without it that is the value of the base class.
    """

    name: str
    kind: type
    attributes: tuple[str, ...] = ()
    plain: Callable[[Any], Any] | None = None


_TYPES_BY_NAME: dict[str, HeaderType] = {}
_TYPES_BY_KIND: dict[type, HeaderType] = {}
_CONSTANTS: dict[str, object] = {}


def register_header_types(*types: HeaderType) -> None:
    """Make types of header values known under their names. An adapter calls this when it is imported.

    Raises ValueError if a name, or a class, is registered already for another.
    """
    for one in types:
        if _TYPES_BY_NAME.get(one.name, one) != one or _TYPES_BY_KIND.get(one.kind, one) != one:
            raise ValueError(f"the header type {one.name} or the class {one.kind.__name__} is registered already")
        _TYPES_BY_NAME[one.name] = _TYPES_BY_KIND[one.kind] = one


def register_header_constant(name: str, value: object) -> None:
    """Make a value that a driver recognises by its identity known under a name.

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
