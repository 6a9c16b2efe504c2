# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers messages that the broker still holds: their failures, decisions and confirmed copies. Pure.

While the broker keeps the original of a message, the ledger holds F, the not-before, the decision and the confirmed
targets. `headers.py` reads what our copies carry instead. A broker's own counter is never asked (own-count).

An entry of a message without an id is claimed, with its count, history and lineage, by the next redelivery that has the
same twin key (see `identity.py`); never while its own delivery lives, and never with a decision, a confirmed copy or an
end.
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
CLAIM_MARGIN_US = 1_800_000_000  # beyond the longest delay, where the broker tells no ack timeout: half an hour
LEDGER_SIZE = 10_000  # entries a ledger keeps; the one used longest ago goes first, which can only lower a count


class Ledger(Protocol):
    """Keeps an entry for each message of which the broker keeps the original. Implemented by `MemoryLedger`."""

    back: set[str]  # keys of what went back to the broker

    def find(self, key: str, /) -> LedgerEntry | None: ...
    def open(self, key: str, make: Callable[[], LedgerEntry], /) -> LedgerEntry: ...
    def forget(self, key: str, /) -> None: ...
    def claim(self, twin: str, oldest_us: int, /) -> LedgerEntry | None: ...
    def awaits_twin(self, twin: str, /) -> bool: ...
    def save(self, key: str, /) -> None: ...  # its entry has changed
    def over(self, key: str, /) -> None: ...  # its settle is written: another process need not know of it


@dataclass(slots=True)
class LedgerEntry:
    """Holds what the ledger knows of one message at one hop. Written by one interceptor at a time."""

    lineage: str
    past: Past
    digest: bytes  # of body and message id: a shortcut is taken only for the very same message
    transfer: Transfer | None = None  # that was decided on, once its first copy went out
    confirmed: frozenset[str] = frozenset()  # copy ids
    done: bool = False  # our settle was given: a redelivery is settled at once
    apart: bool = False  # a transaction failed: its copies are sent first, and settled after
    doubted: bool = False  # a transaction was lost with its link: another one is tried, once
    failure: Failure | None = None  # the last one, without its traceback, for a copy that is made after a redelivery
    crashed: bool = False  # a process died while it, and nothing else, was in a handler: not counted yet
    stranded: bool = False  # it was said that no copy of it can be made, and that it stays unsettled
    tracked: TrackedDelivery | None = None  # the live delivery, so that a fresh twin is never taken for a redelivery
    returns: bool = False  # done, by a retry copy that comes again

    def is_unclaimed(self, oldest_us: int) -> bool:
        """Return whether a redelivery of an identical message may take its count over: one that failed since then.

        Also what is stranded, whenever it failed: it is given back again and again, and is not to be run again.
        """
        counts = self.past.failures > 0 or self.past.not_before_us is not None or self.crashed
        decided = self.done or bool(self.confirmed) or (self.transfer is not None and not self.stranded)
        recent = self.stranded or (self.past.last_failed_us or oldest_us) >= oldest_us
        return counts and not decided and self.tracked is None and recent

    def finish(self) -> None:
        """Its end is decided: only that is remembered, in few bytes."""
        self.done, self.past = True, Past()
        self.transfer, self.failure, self.confirmed = None, None, frozenset()


@dataclass(slots=True, eq=False)
class TrackedDelivery:
    """Holds the state of one delivery with a past. Seconds on the monotonic clock, except where `_us` says otherwise.

    `state` is changed by `Effects.step` alone, by the table in `states.py`.
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
    nameless: bool = False  # without an id: its redelivery claims its count, and nothing else of it
    expected: bool = False  # it went back to the broker before, and has come again
    how: Mechanism = "hold"
    due: float = 0.0  # when its delay is over
    seconds: float = 0.0  # of this hold, or at the broker
    marks: Mapping[str, str] | None = None  # that it is given back with
    transfer: Transfer | None = None
    outs: Mapping[str, Outgoing] = field(default_factory=lambda: NO_COPIES)  # copy id -> copy
    wave: frozenset[str] = frozenset()  # sent, at the last try
    open: frozenset[str] = frozenset()  # sent, not answered
    confirmed: frozenset[str] = frozenset()
    tries: int = 0
    why: str = ""  # the last refusal
    refusals: Mapping[str, str] = field(default_factory=lambda: NO_REFUSALS)  # copy id -> its own last refusal
    doubt: bool = False  # a copy was not answered: it may be there
    copyable: bool = True
    whole: bool = True  # a limbo can keep it
    letter: bool = False  # its dead letter, of which no copy can be made, is on its way into limbo
    since: float = 0.0  # when it was seen first
    failure: Failure | None = None
    draft: RecordAttempt | None = None  # of an attempt that is not over yet

    @property
    def is_retry(self) -> bool:
        """Return whether what is sent for it is a retry copy."""
        return self.transfer is not None and self.transfer.outcome == "redelivered"

    def has_room(self, options: DelayOptions) -> bool:
        """Return whether the delivery is held, or may be."""
        return self.state is State.HELD or self.budget.fits(self.token, options, copyable=self.copyable)

    def take_place(self) -> None:
        """Take a place of the hold budget, apart from others if no copy of the delivery can be made."""
        shared = self.copyable or (self.state is State.HELD and self.budget.options.apart == 0)
        self.budget.take(self.token, apart=not shared)

    def save(self) -> None:
        """Let the ledger keep what was done, as far as it keeps anything."""
        if self.key is not None and self.entry is not None:
            ended = self.state is State.SETTLED and self.entry.done  # what was released is not over
            (self.ledger.over if ended else self.ledger.save)(self.key)

    def expect_return(self) -> None:
        """Note that the broker has the message again, and may hand it out without a mark that says so."""
        if self.key is not None and self.entry is not None and not self.entry.done:
            self.ledger.back.add(self.key)

    def end_entry(self) -> None:
        """Let the ledger remember that the end is decided, and nothing else."""
        if self.entry is not None:
            self.entry.returns = self.is_retry
            self.entry.finish()
            self.ledger.back.discard(self.key or "")


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

        `oldest_us`: when it must have failed at the earliest. The caller's delivery is its owner from then on.
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
