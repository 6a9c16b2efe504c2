# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How often has this message failed here? From the headers of our copies and from the ledger; pure.

The count F rides on copies as `redeliver_failures` and is good only together with `redeliver_failures_for` =
this source and without `redeliver_reason`. A message with a reason is a dead letter that a stranger's tool
sent back: it starts again at F = 0, one generation later. While the broker keeps the original, the ledger
holds F, the not-before, the decision and the confirmed targets. A broker's own counter is never asked.

A message without an id is known by its *twin key*: everything about it that survives a redelivery. Identical messages
share that key and are interchangeable as far as counts go. So an entry of such a message is claimed, with its count,
history and lineage, by the next redelivery that has the same twin key; never while its own delivery lives, and never
with a decision, a confirmed copy or an end.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, cast

from ..adapter.capabilities import Capabilities
from ..message import Delivery, Destination, Identity, Past, SupportsTwins
from . import history

PREFIX = "redeliver_"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HALF = 16  # bytes of a digest, for each of its parts
TWIN = "x"  # with which a twin key begins; the keys of messages with an id are hexadecimal
TWIN_CHARS = 32
CLAIM_MARGIN_US = 1_800_000_000  # beyond the longest delay, where the broker tells no ack timeout: half an hour
MOST_COUNTED = 2**31 - 2**20  # that a header is believed: counting goes on from there, in the journal's 32 bits
LEDGER_SIZE = 10_000  # entries a ledger keeps; the one used longest ago goes first, which can only lower a count


class Ledger(Protocol):
    """What is known of messages of which the broker keeps the original. Implemented by `MemoryLedger`."""

    back: set[str]  # keys of what went back to the broker

    def find(self, key: str, /) -> Any | None: ...
    def open(self, key: str, make: Callable[[], Any], /) -> Any: ...
    def forget(self, key: str, /) -> None: ...
    def claim(self, twin: str, oldest_us: int, /) -> Any | None: ...
    def awaits_twin(self, twin: str, /) -> bool: ...
    def save(self, key: str, /) -> None: ...  # its entry has changed
    def over(self, key: str, /) -> None: ...  # its settle is written: another process need not know of it


@dataclass(slots=True)
class LedgerEntry:
    """What the ledger knows of one message at one hop. Written by one interceptor at a time."""

    lineage: str
    past: Past
    digest: bytes  # of body and message id: a shortcut is taken only for the very same message
    verdict: Any = None  # the `copies.Move` that was decided on, once its first copy went out
    confirmed: frozenset[str] = frozenset()  # copy ids
    done: bool = False  # our settle was given: a redelivery is settled at once
    apart: bool = False  # a transaction failed: its copies are sent first, and settled after
    doubted: bool = False  # a transaction was lost with its link: another one is tried, once
    failure: Any = None  # the last one, without its traceback, for a copy that is made after a redelivery
    crashed: bool = False  # a process died while it, and nothing else, was in a handler: not counted yet
    stranded: bool = False  # it was said that no copy of it can be made, and that it stays unsettled
    story: Any = None  # the live story, so that a fresh twin is never taken for a redelivery
    returns: bool = False  # done, by a retry copy that comes again

    def is_unclaimed(self, oldest_us: int) -> bool:
        """Return whether a redelivery of an identical message may take its count over: one that failed since then.

        Also what is stranded, whenever it failed: it is given back again and again, and is not to be run again.
        """
        counts = self.past.failures > 0 or self.past.not_before_us is not None or self.crashed
        decided = self.done or bool(self.confirmed) or (self.verdict is not None and not self.stranded)
        recent = self.stranded or (self.past.last_failed_us or oldest_us) >= oldest_us
        return counts and not decided and self.story is None and recent

    def finish(self) -> None:
        """Its end is decided: only that is remembered, in few bytes."""
        self.done, self.past = True, Past()
        self.verdict, self.failure, self.confirmed = None, None, frozenset()


class MemoryLedger:
    """The ledger of one process, broker and source. Outlives connections; bounded."""

    def __init__(self, size: int = LEDGER_SIZE) -> None:
        self._size = size
        self.back: set[str] = set()  # keys of what went back to the broker, which may hand it out without a mark
        self._entries: OrderedDict[str, LedgerEntry] = OrderedDict()
        self._twins: dict[str, set[str]] = {}  # twin key -> keys of entries of messages without an id
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: str, /) -> LedgerEntry | None:
        """The entry of `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def open(self, key: str, make: Callable[[], LedgerEntry], /) -> LedgerEntry:
        """The entry of `key`, made when there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = make()
                if key.startswith(TWIN):
                    self._twins.setdefault(key[:TWIN_CHARS], set()).add(key)
                if len(self._entries) > self._size:
                    self._gone(self._entries.popitem(last=False)[0])
            self._entries.move_to_end(key)
            return entry

    def _gone(self, key: str) -> None:
        self.back.discard(key)
        twin = key[:TWIN_CHARS]
        if (keys := self._twins.get(twin)) is not None:
            keys.discard(key)
            if not keys:
                del self._twins[twin]

    def claim(self, twin: str, oldest_us: int, /) -> LedgerEntry | None:
        """Return the entry with the highest count that a redelivered message with this twin key takes over, or None.

        `oldest_us`: when it must have failed at the earliest. The caller's story is its owner from then on.
        """
        with self._lock:
            keys = self._twins.get(twin, ())
            over = [key for key in keys if self._entries[key].done]
            for key in over:  # nobody asks for them again
                self._twins[twin].discard(key)
            found = [entry for key in keys if (entry := self._entries[key]).is_unclaimed(oldest_us)]
            return max(found, key=lambda entry: entry.past.failures + entry.crashed, default=None)

    def awaits_twin(self, twin: str, /) -> bool:
        """Return whether a message with this twin key went back to the broker."""
        with self._lock:
            return any(key in self.back for key in self._twins.get(twin, ()))

    def forget(self, key: str, /) -> None:
        with self._lock:
            self._entries.pop(key, None)
            self._gone(key)

    def save(self, key: str, /) -> None:
        """Its entry has changed."""

    def over(self, key: str, /) -> None:
        """Its settle is written: nobody but this process will ever ask for it."""


_ledgers: dict[tuple[str, Destination], MemoryLedger] = {}
_ledgers_lock = threading.Lock()


def ledger_of(scope: str, source: Destination) -> MemoryLedger:
    """Return the one ledger of this process for a source of a cluster or broker, so that it outlives every connection.

    `scope` is the ledger scope of the adapter, or of the user's connection. Thread-safe.
    """
    with _ledgers_lock:
        return _ledgers.setdefault((scope, source), MemoryLedger())


def read_history_headers(delivery: Delivery) -> Past:
    """What a delivery's own headers say of earlier attempts here. Headers of another source count for nothing."""
    headers = delivery.headers
    if not any(name.startswith(PREFIX) for name in headers):
        return Past()
    source = delivery.destination
    counted_for = _text(headers, "failures_for").removeprefix("queue:")
    reason = _text(headers, "reason")
    counted = counted_for == source.full_name
    replayed = not counted_for and _text(headers, "original_destination") == source.name
    if not (counted or replayed or reason):
        return Past()  # a handler forwarded the headers of another source's message
    past = Past(
        lineage=_text(headers, "lineage")[:64],
        generation=_int(headers, "generation"),
        hop=_int(headers, "hop"),
        first_attempt_us=_time(headers, "first_attempt_at"),
        replay_id=_text(headers, "replay_id") or None,
        original=_originals(headers) if counted or replayed else {},
    )
    if reason:
        past.generation += 1
        past.first_attempt_us = None
    elif counted:
        past.failures = _int(headers, "failures")
        past.not_before_us = _time(headers, "not_before")
        past.expires_at_us = _time(headers, "expires_at")
        past.first_failed_us = _time(headers, "first_failed_at")
        past.last_failed_us = _time(headers, "last_failed_at")
        past.last_error = _last_error(headers)
        past.state = _state(headers)
        past.history = history.read(_text(headers, "history"))
    return past


def count_failure(past: Past, ttl_us: int | None, at_us: int, ran: float, error: str, *, counted: bool) -> None:
    """Note a failure in `past`: at `at_us`, after `ran` seconds. Not `counted`: the handler only asked for a rest."""
    first = at_us - round(ran * 1e6)
    past.failures += counted
    past.first_attempt_us = past.first_attempt_us or first
    if past.expires_at_us is None and ttl_us is not None:
        past.expires_at_us = first + ttl_us  # at the latest: how long it lay in its queue nobody tells
    if counted:
        past.first_failed_us = past.first_failed_us or at_us
    past.last_failed_us = at_us
    past.last_error = error


def message_key(delivery: Delivery, past: Past) -> str | None:
    """The message's own id across copies: its lineage, or a hash; None when it has nothing to be known by."""
    return past.lineage or own_key(delivery)


def own_key(delivery: Delivery) -> str | None:
    """The key that a message has before any copy of it; a delivery is hashed once."""
    if delivery.own_key is None:
        delivery.own_key = key_of(str(delivery.destination), delivery.identity, delivery.body)
    return delivery.own_key


def key_of(source: str, identity: Identity, body: bytes) -> str | None:
    """The key of a message without a past; `source` is its destination, kind and all."""
    if identity.message_id is None:
        return None
    seed = f"{source}\0{identity.message_id!r}\0{identity.timestamp_us!r}"
    return hashlib.sha256(seed.encode("utf-8", "backslashreplace") + body).hexdigest()[:32]


def twin_key(delivery: Delivery, capabilities: Capabilities) -> str:
    """Return what identical messages without an id have in common: all that a redelivery brings back unchanged."""
    reader, native = delivery.reader, delivery.native
    if _knows_twins(type(reader)):
        rest, headers = cast(SupportsTwins, reader).twin(native)
    else:
        headers = delivery.headers
        route = sorted(reader.route(native).items())
        rest = f"{route!r}\0{replace(delivery.properties, ttl_us=None)!r}".encode("utf-8", "backslashreplace")
    found = hashlib.sha256(str(delivery.destination).encode())
    found.update(rest)
    if headers:
        kept = [
            (repr(name), repr(value))
            for name, value in headers.items()
            if name not in capabilities.strip and not name.startswith(capabilities.strip_prefixes)
        ]
        if kept:
            found.update(repr(sorted(kept)).encode("utf-8", "backslashreplace"))
    found.update(b"\0")
    found.update(delivery.body)
    return TWIN + found.hexdigest()[: TWIN_CHARS - 1]


@functools.cache
def _knows_twins(reader: type[object]) -> bool:
    """Return whether readers of this class have `twin`."""
    return issubclass(reader, SupportsTwins)


def ledger_key(key: str, past: Past) -> str:
    """One hop of one generation of one message."""
    return f"{key}/{past.generation}/{past.hop}"


def digest(delivery: Delivery) -> bytes:
    """Tells two messages apart that carry the same lineage (a handler forwarded its headers): of id, and of body."""
    seed = repr(delivery.identity.message_id).encode("utf-8", "backslashreplace")
    return b"".join(hashlib.sha256(part).digest()[:_HALF] for part in (seed, delivery.body))


def same_body(one: bytes, other: bytes) -> bool:
    """Of two digests. ActiveMQ gives a copy that was sent twice two ids, but it is one copy."""
    return one[_HALF:] == other[_HALF:]


def copy_id(lineage: str, generation: int, hop: int, target: Destination) -> str:
    """The id of one copy: the same on every try of it, never that of another copy (exact-copies)."""
    seed = f"{lineage}\0{generation}\0{hop}\0{target}"
    return hashlib.sha256(seed.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def iso(us: int) -> str:
    """Microseconds as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(headers: dict[str, Any], name: str) -> str:
    value = headers.get(PREFIX + name, "")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _int(headers: dict[str, Any], name: str) -> int:
    """A decimal from 0 to MOST_COUNTED; whatever else a stranger wrote there is 0."""
    text = _text(headers, name)
    return min(int(text), MOST_COUNTED) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _time(headers: dict[str, Any], name: str) -> int | None:
    try:
        when = datetime.fromisoformat(_text(headers, name))
        when = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (when - _EPOCH) // timedelta(microseconds=1)


def due_now(headers: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    """The headers of a copy that goes out now, though it says a later date: it was made due by hand."""
    due_us = _time(dict(headers), "not_before")
    return dict(headers) if due_us is None or due_us <= now_us else {**headers, "redeliver_not_before": iso(now_us)}


def _state(headers: dict[str, Any]) -> dict[str, str]:
    try:
        state = json.loads(_text(headers, "state") or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(k): str(v) for k, v in state.items()} if isinstance(state, dict) else {}


def _last_error(headers: dict[str, Any]) -> str | None:
    kind, text = _text(headers, "error_type"), _text(headers, "error_message")
    return f"{kind}: {text}" if kind else None


def _originals(headers: dict[str, Any]) -> dict[str, str]:
    start = PREFIX + "original_"
    return {name: _text(headers, name.removeprefix(PREFIX)) for name in headers if name.startswith(start)}
