# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One queue of the memory broker, and what it takes. The broker's lock guards it."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..message import Destination
from .personality import StoredMessage

_SCALARS = (str, bytes, int, float, bool, type(None))


class QueueConsumer(Protocol):
    """A link that consumes from a queue."""

    exclusive: bool

    def nudge(self) -> None:
        """Take what there is room for. The broker's lock is held."""


class MemoryQueue:
    """First in, first out; what was returned comes first, in the order in which it first came. O(1) a message
    (O(log n) a returned one)."""

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
        self.dead_letter = dead_letter  # empty: none
        self.limit = limit
        self.declared = declared  # when, monotonic
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
        """How many were dropped."""
        before = len(self)
        self._ready = deque(message for message in self._ready if not unwanted(message))
        self._returned = [entry for entry in self._returned if not unwanted(entry[1])]
        heapq.heapify(self._returned)
        return before - len(self)

    def pump(self) -> None:
        """Wake consumers that have room, if there is something for them."""
        if len(self):
            for link in self.consumers:
                link.nudge()

    def taken(self, exclusive: bool) -> bool:
        """May no (exclusive) consumer come to it?"""
        return bool(self.consumers) and (exclusive or self.consumers[0].exclusive)


class Duplicates:
    """The `_AMQ_DUPL_ID`s that Artemis remembers for one address: the last 20 000."""

    def __init__(self) -> None:
        self._ids: OrderedDict[object, None] = OrderedDict()

    def seen(self, duplicate: object) -> bool:
        """Has it been here? From now on it has."""
        if duplicate in self._ids:
            return True
        self._ids[duplicate] = None
        if len(self._ids) > 20_000:
            self._ids.popitem(last=False)
        return False


def encoding_problem(headers: Mapping[str, Any], header_bytes: int) -> str:
    """Why these headers cannot be carried exactly; empty when they can."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _plain(value):
            return f"header {name!r} holds a {type(value).__name__}, which cannot be copied exactly"
        if isinstance(value, str | bytes) and header_size(name, value) > header_bytes:
            return f"header {name!r} has more than {header_bytes} bytes"
    return ""


def header_size(name: str, value: object) -> int:
    """Bytes that one header takes, as near as a broker without a wire can say."""
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
