# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers messages that the broker still holds: their failures, decisions and confirmed copies. Pure.

While the broker keeps the original of a message, the ledger holds F, the not-before, the decision and the confirmed
targets. `headers.py` reads what our copies carry instead. A broker's own counter is never used (own-count).

The next redelivery with the same twin key (see `identity.py`) claims the entry of a message without an id, with its
count, history and lineage. An entry is never claimed while its own delivery lives, nor once it has a decision, a
confirmed copy or an end.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..failure import Failure
from ..message import Destination, Past
from .copies import Transfer
from .identity import TWIN, TWIN_CHARS

if TYPE_CHECKING:
    from .tracking import TrackedDelivery

CLAIM_MARGIN_US = 1_800_000_000  # beyond the longest delay, if the broker reports no ack timeout: half an hour
LEDGER_SIZE = 10_000  # entries in a ledger; the least recently used one is removed first, which can only lower a count


class Ledger(Protocol):
    """Keeps an entry for each message whose original is at the broker. Implemented by `MemoryLedger`."""

    back: set[str]  # keys of messages that the broker has again

    @property
    def changed(self) -> dict[str, bool] | None:
        """Return the keys of entries that have changed, for a database that stores the ledger; None without one.

        The values say whether the settlement is written, so that no other process needs the entry.
        """

    def find(self, key: str, /) -> LedgerEntry | None: ...
    def open(self, key: str, new: LedgerEntry, /) -> LedgerEntry: ...
    def forget(self, key: str, /) -> None: ...
    def claim(self, twin: str, oldest_us: int, /) -> LedgerEntry | None: ...
    def awaits_twin(self, twin: str, /) -> bool: ...


@dataclass(slots=True)
class LedgerEntry:
    """Holds what the ledger knows about one message at one hop. Written by one interceptor at a time."""

    lineage: str
    past: Past
    digest: bytes  # of body and message id: only the identical message is settled without a run
    transfer: Transfer | None = None  # the decision, once its first copy was sent
    confirmed: frozenset[str] = frozenset()  # ids of confirmed copies
    done: bool = False  # the settlement was decided: a redelivery is settled at once
    apart: bool = False  # a transaction failed: its copies are sent first, and the original is settled afterwards
    doubted: bool = False  # a transaction was lost with its link: another one is tried, once
    # the last failure, without its traceback, for a copy that is made after a redelivery
    failure: Failure | None = None
    crashed: bool = False  # a process died while only this message was in a handler: not counted yet
    stranded: bool = False  # it was logged that the message cannot be copied, and that it stays unsettled
    tracked: TrackedDelivery | None = None  # the live delivery, so that a fresh twin is never taken for a redelivery
    returns: bool = False  # done, by a retry copy that will be delivered

    def is_unclaimed(self, oldest_us: int) -> bool:
        """Return whether the redelivery of an identical message may take over the count of this entry.

        The message must have failed at `oldest_us` (microseconds since 1970) or later. The time does not matter for
        stranded messages: they are released again and again, and must not be run again.
        """
        counts = self.past.failures > 0 or self.past.not_before_us is not None or self.crashed
        decided = self.done or bool(self.confirmed) or (self.transfer is not None and not self.stranded)
        recent = self.stranded or (self.past.last_failed_us or oldest_us) >= oldest_us
        return counts and not decided and self.tracked is None and recent

    def finish(self) -> None:
        """Note that the end is decided, and keep only that, in few bytes."""
        self.done, self.past = True, Past()
        self.transfer, self.failure, self.confirmed = None, None, frozenset()


class MemoryLedger:
    """Is the ledger of one process, broker and source. Outlives connections; bounded."""

    def __init__(self, size: int = LEDGER_SIZE) -> None:
        self._size = size
        self.back: set[str] = set()  # keys of messages that the broker has again, and may deliver without a mark
        self.changed: dict[str, bool] | None = None
        self._entries: OrderedDict[str, LedgerEntry] = OrderedDict()
        self._twins: dict[str, set[str]] = {}  # twin key -> keys of entries of messages without an id
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: str, /) -> LedgerEntry | None:
        """Return the entry of `key`, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def open(self, key: str, new: LedgerEntry, /) -> LedgerEntry:
        """Return the entry of `key`, which is `new` if there was none."""
        with self._lock:
            entry = self._entries.setdefault(key, new)
            if entry is new:
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

        `oldest_us`: the earliest time of failure for an entry to be taken over, in microseconds since 1970. The
        caller's delivery owns the entry from then on.
        """
        with self._lock:
            keys = self._twins.get(twin, ())
            over = [key for key in keys if self._entries[key].done]
            for key in over:  # no delivery asks for these entries again
                self._twins[twin].discard(key)
            found = [entry for key in keys if (entry := self._entries[key]).is_unclaimed(oldest_us)]
            return max(found, key=lambda entry: entry.past.failures + entry.crashed, default=None)

    def awaits_twin(self, twin: str, /) -> bool:
        """Return whether the broker has a message with this twin key again."""
        with self._lock:
            return any(key in self.back for key in self._twins.get(twin, ()))

    def forget(self, key: str, /) -> None:
        with self._lock:
            self._entries.pop(key, None)
            self._gone(key)


_ledgers: dict[tuple[str, Destination], MemoryLedger] = {}
_ledgers_lock = threading.Lock()


def ledger_of(scope: str, source: Destination) -> MemoryLedger:
    """Return the one ledger of this process for a source of a cluster or broker, so that it outlives every connection.

    `scope` is the ledger scope of the adapter, or of the user's connection. Thread-safe.
    """
    with _ledgers_lock:
        return _ledgers.setdefault((scope, source), MemoryLedger())
