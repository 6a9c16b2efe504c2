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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from ..adapter.capabilities import Mechanism
from ..failure import Failure
from ..message import Delivery, Destination, Outgoing, Past
from .commands import RecordAttempt
from .copies import Transfer
from .delays import DelayOptions
from .hold_budget import HoldBudget
from .identity import TWIN, TWIN_CHARS
from .plan import SourcePlan
from .states import State

NO_COPIES: Mapping[str, Outgoing] = MappingProxyType({})
NO_REFUSALS: Mapping[str, str] = MappingProxyType({})
CLAIM_MARGIN_US = 1_800_000_000  # beyond the longest delay, if the broker reports no ack timeout: half an hour
LEDGER_SIZE = 10_000  # entries in a ledger; the least recently used one is removed first, which can only lower a count


class Ledger(Protocol):
    """Keeps an entry for each message whose original is at the broker. Implemented by `MemoryLedger`."""

    back: set[str]  # keys of messages that the broker has again

    def find(self, key: str, /) -> LedgerEntry | None: ...
    def open(self, key: str, make: Callable[[], LedgerEntry], /) -> LedgerEntry: ...
    def forget(self, key: str, /) -> None: ...
    def claim(self, twin: str, oldest_us: int, /) -> LedgerEntry | None: ...
    def awaits_twin(self, twin: str, /) -> bool: ...
    def save(self, key: str, /) -> None: ...  # its entry has changed
    def over(self, key: str, /) -> None: ...  # its settlement is written: no other process needs the entry


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


@dataclass(slots=True, eq=False)
class TrackedDelivery:
    """Holds the state of one tracked delivery. Seconds on the monotonic clock, except where `_us` says otherwise.

    Only `Effects.step` changes `state`, by the table in `states.py`.
    """

    token: int
    delivery: Delivery
    plan: SourcePlan
    past: Past
    state: State
    lineage: str
    key: str | None  # in the ledger; None for a message that shares its id with a live one
    entry: LedgerEntry | None
    ledger: Ledger  # of its source
    budget: HoldBudget  # of its source
    nameless: bool = False  # without an id: its redelivery claims its count, and nothing else
    expected: bool = False  # the broker had the message again, and has delivered it again
    how: Mechanism = "hold"
    due: float = 0.0  # when the delay is over
    seconds: float = 0.0  # of this hold, or of the delay at the broker
    marks: Mapping[str, str] | None = None  # headers with which the message is released
    transfer: Transfer | None = None
    outs: Mapping[str, Outgoing] = field(default_factory=lambda: NO_COPIES)  # copy id -> copy
    wave: frozenset[str] = frozenset()  # copies sent at the last try
    open: frozenset[str] = frozenset()  # copies sent and not answered
    confirmed: frozenset[str] = frozenset()
    tries: int = 0
    why: str = ""  # the last refusal
    refusals: Mapping[str, str] = field(default_factory=lambda: NO_REFUSALS)  # copy id -> its own last refusal
    doubt: bool = False  # a copy was not answered: the broker may have it
    copyable: bool = True
    whole: bool = True  # a limbo can store the message
    letter: bool = False  # the dead letter of a message that cannot be copied is being put into limbo
    since: float = 0.0  # when the delivery was first seen
    failure: Failure | None = None
    draft: RecordAttempt | None = None  # of an attempt that is not over yet

    @property
    def is_retry(self) -> bool:
        """Return whether the copies sent for the delivery are retry copies."""
        return self.transfer is not None and self.transfer.outcome == "redelivered"

    def has_room(self, options: DelayOptions) -> bool:
        """Return whether the delivery is held, or may be."""
        return self.state is State.HELD or self.budget.fits(self.token, options, copyable=self.copyable)

    def take_place(self) -> None:
        """Take a place of the hold budget, apart from others if no copy of the delivery can be made."""
        shared = self.copyable or (self.state is State.HELD and self.budget.options.apart == 0)
        self.budget.take(self.token, apart=not shared)

    def save(self) -> None:
        """Let the ledger store the changes, if it stores any."""
        if self.key is not None and self.entry is not None:
            ended = self.state is State.SETTLED and self.entry.done  # a released delivery is not over
            (self.ledger.over if ended else self.ledger.save)(self.key)

    def expect_return(self) -> None:
        """Note that the broker has the message again, and may deliver it without marking it as redelivered."""
        if self.key is not None and self.entry is not None and not self.entry.done:
            self.ledger.back.add(self.key)

    def end_entry(self) -> None:
        """Let the ledger remember only that the end is decided."""
        if self.entry is not None:
            self.entry.returns = self.is_retry
            self.entry.finish()
            self.ledger.back.discard(self.key or "")


class MemoryLedger:
    """Is the ledger of one process, broker and source. Outlives connections; bounded."""

    def __init__(self, size: int = LEDGER_SIZE) -> None:
        self._size = size
        self.back: set[str] = set()  # keys of messages that the broker has again, and may deliver without a mark
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

    def open(self, key: str, make: Callable[[], LedgerEntry], /) -> LedgerEntry:
        """Return the entry of `key`, made if there is none."""
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

    def save(self, key: str, /) -> None:
        """Note that the entry of `key` has changed."""

    def over(self, key: str, /) -> None:
        """Note that the settlement of `key` is written: only this process will ever need the entry."""


_ledgers: dict[tuple[str, Destination], MemoryLedger] = {}
_ledgers_lock = threading.Lock()


def ledger_of(scope: str, source: Destination) -> MemoryLedger:
    """Return the one ledger of this process for a source of a cluster or broker, so that it outlives every connection.

    `scope` is the ledger scope of the adapter, or of the user's connection. Thread-safe.
    """
    with _ledgers_lock:
        return _ledgers.setdefault((scope, source), MemoryLedger())


def count_failure(past: Past, ttl_us: int | None, at_us: int, ran: float, error: str, *, counted: bool) -> None:
    """Note a failure in `past`: at `at_us`, after `ran` seconds.

    Without `counted`, the handler only asked for a delay.
    """
    first = at_us - round(ran * 1e6)
    past.failures += counted
    past.first_attempt_us = past.first_attempt_us or first
    if past.expires_at_us is None and ttl_us is not None:
        past.expires_at_us = first + ttl_us  # at the latest: how long the message was in its queue is unknown
    if counted:
        past.first_failed_us = past.first_failed_us or at_us
    past.last_failed_us = at_us
    past.last_error = error
