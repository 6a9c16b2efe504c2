# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds one queue of the memory broker, and the checks of what it accepts. The broker's lock guards the queue."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..message import Destination
from .personality import StoredMessage

_SCALARS = (str, bytes, int, float, bool, type(None))


class QueueConsumer(Protocol):
    """Consumes from a queue through a link."""

    exclusive: bool

    def nudge(self) -> None:
        """Take messages while there is room. Called with the broker's lock held."""


class MemoryQueue:
    """Is first in, first out. Returned messages come first, in the order in which they first came.

    Costs O(1) per message, and O(log n) per returned message.
    """

    __slots__ = (
        "_ready",
        "_returned",
        "consumers",
        "dead_letter",
        "declared",
        "destination",
        "limit",
        "max_length",
        "refuse",
    )

    def __init__(
        self,
        destination: Destination,
        max_length: int | None,
        refuse: bool,
        dead_letter: str,
        limit: int | None,
        *,
        declared: float,
    ) -> None:
        self.destination = destination
        self.max_length, self.refuse = max_length, refuse
        self.dead_letter = dead_letter  # empty if there is none
        self.limit = limit
        self.declared = declared  # when, in monotonic seconds
        self.consumers: deque[QueueConsumer] = deque()
        self._ready: deque[StoredMessage] = deque()
        self._returned: list[tuple[int, StoredMessage]] = []

    def __len__(self) -> int:
        return len(self._ready) + len(self._returned)

    @property
    def full(self) -> bool:
        return self.max_length is not None and len(self) >= self.max_length

    def put(self, message: StoredMessage) -> None:
        self._ready.append(message)

    def put_back(self, message: StoredMessage) -> None:
        heapq.heappush(self._returned, (message.id, message))

    def head(self) -> StoredMessage:
        return self._returned[0][1] if self._returned else self._ready[0]

    def take(self) -> StoredMessage:
        return heapq.heappop(self._returned)[1] if self._returned else self._ready.popleft()

    def messages(self) -> list[StoredMessage]:
        returned = sorted(self._returned, key=lambda entry: entry[0])
        return [message for _, message in returned] + list(self._ready)

    def drop_if(self, unwanted: Callable[[StoredMessage], bool]) -> int:
        """Drop unwanted messages; return how many were dropped."""
        before = len(self)
        self._ready = deque(message for message in self._ready if not unwanted(message))
        self._returned = [entry for entry in self._returned if not unwanted(entry[1])]
        heapq.heapify(self._returned)
        return before - len(self)

    def pump(self) -> None:
        """Wake consumers that have room if there are messages for them."""
        if len(self):
            for link in self.consumers:
                link.nudge()

    def taken(self, exclusive: bool) -> bool:
        """Return whether the queue refuses another consumer, or an exclusive one."""
        return bool(self.consumers) and (exclusive or self.consumers[0].exclusive)


class Duplicates:
    """Remembers the `_AMQ_DUPL_ID`s of one Artemis address: the last 20 000."""

    def __init__(self) -> None:
        self._ids: OrderedDict[object, None] = OrderedDict()

    def seen(self, duplicate: object) -> bool:
        """Return whether the id was seen before, and remember it."""
        if duplicate in self._ids:
            return True
        self._ids[duplicate] = None
        if len(self._ids) > 20_000:
            self._ids.popitem(last=False)
        return False


def encoding_problem(headers: Mapping[str, Any], header_bytes: int) -> str:
    """Return why these headers cannot be carried exactly, or an empty text if they can."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _plain(value):
            return f"header {name!r} holds a {type(value).__name__}, which cannot be copied exactly"
        if isinstance(value, str | bytes) and header_size(name, value) > header_bytes:
            return f"header {name!r} has more than {header_bytes} bytes"
    return ""


def header_size(name: str, value: object) -> int:
    """Return the size of one header in bytes, estimated because this broker has no wire format."""
    if isinstance(value, bytes):
        return len(name) + len(value)
    return len(name.encode()) + len(str(value).encode("utf-8", "backslashreplace"))


def _plain(value: object) -> bool:
    if type(value) in _SCALARS:
        return True
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(inner) for key, inner in value.items())
    return False
