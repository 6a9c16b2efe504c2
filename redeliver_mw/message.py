# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a handler gets, and what goes out: `Destination`, `Delivery`, `Outgoing`. No broker words.

A `Delivery` is a slotted handle over the driver's own message: it is made with one allocation, and its
body and headers are read on first use through the adapter's `Reader`, of which there is one per dialect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from .errors import ConfigError
from .reading import Death, Destination, Identifying, Identity, Imaging, Kind, Packing, Properties, Reader

__all__ = [
    "Attempt", "Checking", "Death", "Delivery", "Destination", "Identifying", "Identity", "Imaging", "Kind", "Outgoing",
    "Packing", "Past", "Properties", "Reader",
]  # fmt: skip

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_PROPERTIES = Properties()


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
        "_body", "_headers", "_identity", "_past", "_properties", "destination", "failures", "generation", "known",
        "native", "outbox", "own_key", "plan", "reader", "redelivered", "tag",
    )  # fmt: skip

    def __init__(
        self, destination: Destination, generation: int, tag: Any, redelivered: bool, native: Any, reader: Reader
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
        self.outbox: Any = None  # of the run that it is in; None: there was none
        self.plan: Any = None  # what was to hold for it when it arrived; None: what holds when it is asked for
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
            return cast(Identifying, self.reader).identity(self.native)
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
        return None if us is None else datetime.fromtimestamp(us / 1e6, UTC)

    @property
    def last_error(self) -> str | None:
        """`Type: message` of the last failure, redacted and trimmed; None before that."""
        return self._past.last_error if self._past else None

    @property
    def state(self) -> dict[str, str]:
        """Strings that the handler keeps between attempts: at most 1 KiB as JSON once the message is copied."""
        return self.past.state

    def send(
        self, destination: str | Destination, body: bytes | str, headers: Mapping[str, Any] | None = None, *,
        after: float = 0.0, **properties: Any,
    ) -> None:  # fmt: skip
        """Send a durable message if, and only if, the handler succeeds: together with the settling of this one.

        A str goes out as UTF-8. `after`: seconds from the handler's success on. `properties` as in `Properties`, those
        that a sender sets. ConfigError for what can never be sent, and outside of a handler's run. Any thread.
        """
        if self.outbox is None:
            raise ConfigError(
                "Delivery.send works only while a handler has the delivery", where=str(self.destination),
                cure="Call it while its handler, callback or block runs; elsewhere publish yourself",
            )  # fmt: skip
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
def _identifies(reader: type[Reader]) -> bool:
    """Asked once: asking a protocol takes longer than to read a message."""
    return issubclass(reader, Identifying)
