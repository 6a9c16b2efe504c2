# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what a reader takes, `ForeignMessage`, and what it returns, `ForeignLetter`.

`ForeignMessage` gives bounded texts and numbers, whatever the types of the values that another program wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, Protocol, cast

import orjson

from ...failure import fingerprint
from ...message import Delivery, Destination, MessageReader, Properties, SupportsAnnotations
from ...redaction import label, safe, trim_utf8
from .stacks import PrintedStack

BODY_BYTES = 1024 * 1024  # a larger body is not parsed
STACK_CHARS = 128 * 1024  # of a stack that are read
MESSAGE_BYTES = 2048  # of an error's message that are kept
NAME_BYTES = 512  # of a name or an id that are kept
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLetter:
    """Describes a message that another framework wrote.

    `dead`: the framework itself has put the message aside. Otherwise only the broker can tell that it is dead.
    """

    framework: str  # such as `Celery`
    dead: bool = False
    source: Destination | None = None  # where the framework consumed it from, if that can be known
    problem: str = ""  # why `source` cannot be known
    reason: str = ""  # the framework's own word
    task: str = ""  # the name of the task, or the type of the message
    id: str = ""  # the framework's id for the message
    attempts: int = 0  # how often it has failed, as far as the framework wrote it down
    since: float | None = None  # time of the last failure, in seconds since 1970
    error_type: str = ""
    error_message: str = ""  # redacted
    stack: PrintedStack | None = None
    drops: tuple[str, ...] = ()  # names of the headers that a replay leaves out, as the framework's own tool does

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that are the same for the same failure; empty if the framework wrote no error."""
        frames = list(self.stack.frames) if self.stack else []
        return fingerprint(self.error_type, frames) if self.error_type or frames else ""


class ForeignReader(Protocol):
    """Reads the messages of one framework. Never raises."""

    def __call__(self, message: ForeignMessage, /) -> ForeignLetter | None:
        """Return what is known of a message, or None if another program wrote it."""


class ForeignMessage:
    """Shows a delivery to a reader: bounded texts, numbers and times of headers, and the body as JSON."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self.headers: Mapping[str, Any] = delivery.headers
        if _annotates(type(delivery.reader)):
            reader = cast(SupportsAnnotations, delivery.reader)
            self.headers = {**reader.annotations(delivery.native), **delivery.headers}

    @property
    def queue(self) -> str:
        """Return the name of the queue that the message lies in."""
        return self._delivery.destination.name

    @property
    def properties(self) -> Properties:
        return self._delivery.properties

    @property
    def content_type(self) -> str:
        return text_of(self.properties.content_type).lower()

    @property
    def message_id(self) -> str:
        return name_of(self.properties.message_id)

    def has(self, *names: str) -> bool:
        """Return whether one of these headers is there."""
        return not self.headers.keys().isdisjoint(names)

    def name(self, header: str) -> str:
        """Return a header as a short text, clean and in one piece; empty if there is none."""
        value = self.headers.get(header)
        return "" if value is None else name_of(value)

    def error(self, header: str) -> str:
        """Return a header as an error's message, redacted."""
        return error_of(self.headers.get(header))

    def stack(self, header: str) -> PrintedStack | None:
        """Return the stack in a header, or None."""
        return PrintedStack.parse(text_of(self.headers.get(header), STACK_CHARS))

    def number(self, header: str) -> int:
        """Return a header as a number from 0 on; 0 for anything else."""
        return number_of(self.headers.get(header))

    def time(self, header: str) -> float | None:
        """Return a header as seconds since 1970: ISO 8601, or a timestamp of the driver's."""
        return time_of(self.headers.get(header))

    def body_holds(self, *words: bytes) -> bool:
        """Return whether the body may be a JSON object with these words in it. Cheap."""
        body = self._delivery.body
        return len(body) <= BODY_BYTES and body[:1] == b"{" and all(word in body for word in words)

    @cached_property
    def json(self) -> Mapping[str, Any]:
        """Return the body if it is one JSON object of at most 1 MiB; otherwise an empty mapping."""
        if not self.body_holds():
            return {}
        try:
            found = orjson.loads(self._delivery.body)
        except orjson.JSONDecodeError:
            return {}
        return found if isinstance(found, dict) else {}


@cache
def _annotates(reader: type[MessageReader]) -> bool:
    """Return whether the reader is `SupportsAnnotations`. Cached, because a protocol check takes long."""
    return issubclass(reader, SupportsAnnotations)


def text_of(value: object, chars: int = 16 * 1024) -> str:
    """Return the beginning of a text or of bytes; a number as text; empty for any other value."""
    if isinstance(value, str):
        return str.__str__(value)[:chars]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:chars]).decode("utf-8", "replace")
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**64:
        return ""
    return str(int(value))


def name_of(value: object) -> str:
    """Return a value as a short text that every store can carry."""
    return label(text_of(value, NAME_BYTES + 1), NAME_BYTES)


def error_of(value: object) -> str:
    """Return a value as an error's message, redacted before it is cut."""
    return trim_utf8(safe(text_of(value)), MESSAGE_BYTES)


def number_of(value: object) -> int:
    """Return a number from 0 on; 0 for anything that is none."""
    text = text_of(value, 24).strip()
    return min(int(text), _MOST) if text.isascii() and text.isdigit() else 0


def time_of(value: object) -> float | None:
    """Return seconds since 1970; None for a value that is no time."""
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(text_of(value, 64).strip())
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def queue_of(name: str) -> Destination | None:
    """Return the queue of this name; None if it cannot be one."""
    return Destination(name) if name and name == name.strip() else None


def text_items(value: object, most: int = 64) -> list[str]:
    """Return the texts in a list, at most `most`; none for any other value."""
    return [name_of(item) for item in value[:most] if isinstance(item, str)] if isinstance(value, list) else []
