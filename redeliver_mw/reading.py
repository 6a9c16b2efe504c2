# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How a driver's message is read: the `Reader` of an adapter, and what it gives. No broker words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from .errors import ConfigError

Kind = Literal["queue", "topic"]


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """A queue or topic by name, without any broker's prefix; or one durable subscription to a topic.

    What goes to a topic reaches all of its subscriptions; what goes to a destination with a `subscription`
    reaches that one alone, as a retry copy and a replay must.
    """

    name: str
    kind: Kind = "queue"
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
        kind: Kind = "topic" if colon and head == "topic" else "queue"
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


@dataclass(frozen=True, slots=True)
class Death:
    """What a broker wrote on a message that it dead-lettered itself: where it was consumed from, and why."""

    source: Destination
    reason: str = ""  # the broker's own word; empty where it says nothing
    at_us: int | None = None  # microseconds since 1970, UTC, as exact as the broker tells; None: it does not
    count: int = 0  # how often it died there, for this reason; 0: the broker does not count


class Reader(Protocol):
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
class Identifying(Protocol):
    """A reader that finds these three without reading all properties: they are asked of every message."""

    def identity(self, native: Any, /) -> Identity: ...


@runtime_checkable
class Imaging(Protocol):
    """A reader whose copies need more of their original than `Outgoing` says, and which can put that into bytes."""

    def image(self, native: Any, /) -> bytes: ...
    def native(self, image: bytes, /) -> Any: ...  # as good as the one that the image was made of


@runtime_checkable
class Packing(Protocol):
    """A reader whose messages can be put into bytes and be had again, exactly, in another process, at another time."""

    def pack(self, native: Any, /) -> bytes: ...  # all of it, but for the body where that is the same as `body`
    def unpack(self, packed: bytes, body: bytes, /) -> Any: ...  # `body` as it was read; ValueError for what is none
