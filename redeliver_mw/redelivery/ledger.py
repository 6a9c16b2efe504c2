# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers messages that the broker still holds: their failures, decisions and confirmed copies. Pure.

While the broker keeps the original of a message, the ledger holds F, the not-before, the decision and the confirmed
targets. `headers.py` reads what our copies carry instead. A broker's own counter is never used (own-count).

The next redelivery with the same twin key (see `identity.py`) claims the entry of a message without an id, with its
count, history and lineage. An entry is never claimed while its own delivery lives, nor once it has a decision, a
confirmed copy or an end.

A `TrackedDelivery` is the live delivery of such a message. While it waits here unsettled it takes a place of its
source's prefetch window, which the `HoldBudget` counts. Half of the window may be held, so that healthy messages keep
the other half (no-head-of-line-blocking). A delivery of which no copy can be made stays longer than others; it has a
place apart, and takes none from those that only wait for their delay, as long as there is one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from ..adapter.capabilities import Mechanism
from ..clock import Moment
from ..failure import Failure
from ..message import Delivery, Destination, Outgoing, Past
from .commands import RecordAttempt
from .copies import Transfer
from .delays import DelayOptions
from .identity import TWIN, TWIN_CHARS
from .plan import SourcePlan
from .states import State

NO_COPIES: Mapping[str, Outgoing] = MappingProxyType({})
NO_REFUSALS: Mapping[str, str] = MappingProxyType({})
NOBODY = 0  # no delivery's token

CLAIM_MARGIN = 1800.0  # seconds beyond the longest delay, if the broker reports no ack timeout: half an hour
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
    def claim(self, twin: str, oldest: Moment, /) -> LedgerEntry | None: ...
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
    failed_mono: float | None = None  # when this process noted it, on the monotonic clock: the other one may be set
    crashed: bool = False  # a process died while only this message was in a handler: not counted yet
    stranded: bool = False  # it was logged that the message cannot be copied, and that it stays unsettled
    tracked: TrackedDelivery | None = None  # the live delivery, so that a fresh twin is never taken for a redelivery
    returns: bool = False  # done, by a retry copy that will be delivered

    def is_unclaimed(self, oldest: Moment) -> bool:
        """Return whether the redelivery of an identical message may take over the count of this entry.

        The message must have failed at `oldest` or later, by the monotonic clock if this process noted the failure.
        The time does not matter for stranded messages: they are released again and again, and must not be run again.
        """
        counts = self.past.failures > 0 or self.past.not_before_us is not None or self.crashed
        decided = self.done or bool(self.confirmed) or (self.transfer is not None and not self.stranded)
        if self.failed_mono is not None:
            recent = self.failed_mono >= oldest.mono
        else:
            recent = (self.past.last_failed_us or oldest.us) >= oldest.us
        return counts and not decided and self.tracked is None and (recent or self.stranded)

    def finish(self) -> None:
        """Note that the end is decided, and keep only that, in few bytes."""
        self.done, self.past = True, Past()
        self.transfer, self.failure, self.confirmed = None, None, frozenset()


class HoldBudget:
    """Knows the deliveries of one source that are held here, by token.

    Not thread-safe; the counts may be read from any thread.

    Methods take `options`, the delay options as they are now, and the token of the delivery that they are about.
    `beside` is the number of further places that are taken: by messages that wait behind one of their key.
    """

    def __init__(self, source: Destination, plans: Mapping[Destination, SourcePlan]) -> None:
        self._source, self._plans = source, plans
        self.held: set[int] = set()
        self.apart: set[int] = set()  # held or stranded, without a copy
        self.beside = 0

    @property
    def options(self) -> DelayOptions:
        """Return the delay options of the source as they are now: a window that the driver opens changes them."""
        return self._plans[self._source].ways

    def taken(self, token: int, options: DelayOptions) -> int:
        """Return how many places of the budget are taken by others than this delivery."""
        apart = len(self.apart) - (token in self.apart)
        beside = self.beside + max(0, apart - options.apart_beyond)
        return len(self.held) - (token in self.held) + beside

    def fits_apart(self, token: int, options: DelayOptions) -> bool:
        """Return whether the delivery has, or can have, a place among those that cannot be copied."""
        others = len(self.apart) - (token in self.apart)
        within = others < options.apart_beyond or self.taken(token, options) < options.budget
        return others < options.apart and within

    def fits(self, token: int, options: DelayOptions, *, copyable: bool) -> bool:
        """Return whether there is a place for a delivery that is not held yet."""
        if not copyable and self.fits_apart(token, options):
            return True
        shared = copyable or options.apart == 0
        return shared and self.taken(token, options) < options.budget

    def counts(self) -> tuple[int, int, int]:
        """Return how many deliveries are held, how many places of the budget are taken, and its size. Any thread."""
        options = self.options
        return len(self.held) + len(self.apart), self.taken(NOBODY, options), options.budget

    def take(self, token: int, *, apart: bool) -> None:
        """Give the delivery a place, or another one than it has."""
        if apart:
            self.held.discard(token)
            self.apart.add(token)
        else:
            self.held.add(token)

    def leave(self, token: int) -> None:
        """Free the place of the delivery, if it has one."""
        self.held.discard(token)
        self.apart.discard(token)


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

    def expect_return(self) -> None:
        """Note that the broker has the message again, and may deliver it without marking it as redelivered."""
        if self.key is not None and self.entry is not None and not self.entry.done:
            self.ledger.back.add(self.key)

    def end_entry(self) -> bool:
        """Let the ledger remember only that the end is decided; return whether the message returns as a retry copy."""
        returns = self.is_retry
        if self.entry is not None:
            self.entry.returns = returns
            self.entry.finish()
            self.ledger.back.discard(self.key or "")
        return returns


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

    def claim(self, twin: str, oldest: Moment, /) -> LedgerEntry | None:
        """Return the entry with the highest count that a redelivered message with this twin key takes over, or None.

        `oldest`: the earliest time of failure for an entry to be taken over. The caller's delivery owns the entry from
        then on.
        """
        with self._lock:
            keys = self._twins.get(twin, ())
            over = [key for key in keys if self._entries[key].done]
            for key in over:  # no delivery asks for these entries again
                self._twins[twin].discard(key)
            found = [entry for key in keys if (entry := self._entries[key]).is_unclaimed(oldest)]
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
