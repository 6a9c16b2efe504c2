# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks deliveries: the state of each one, its place among those that wait here, and its entry in the ledger. Pure.

A delivery that waits here unsettled takes a place of its source's prefetch window. Half of the window may be held, so
that healthy messages keep the other half (no-head-of-line-blocking). A delivery of which no copy can be made stays
longer than others; it has a place apart, and takes none from those that only wait for their delay, as long as there is
one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..adapter.capabilities import Capabilities, Mechanism
from ..clock import Moment
from ..failure import Failure
from ..message import Delivery, Destination, Outgoing, Past
from . import identity
from .commands import RecordAttempt
from .copies import Transfer
from .delays import DelayOptions
from .ledger import CLAIM_MARGIN_US, Ledger, LedgerEntry
from .plan import NO_PAST, SourcePlan
from .states import State

NO_COPIES: Mapping[str, Outgoing] = MappingProxyType({})
NO_REFUSALS: Mapping[str, str] = MappingProxyType({})
NOBODY = 0  # no delivery's token


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


class TrackedDeliveries:
    """Holds the tracked deliveries of one connection, by token and by delivery.

    Not thread-safe but for `awaits`, `budget_of` and `waiting_for_answers`.
    """

    def __init__(
        self,
        plans: Mapping[Destination, SourcePlan],
        ledgers: Mapping[Destination, Ledger],
        capabilities: Capabilities,
        run_id: str,
    ) -> None:
        self.plans = plans
        self.capabilities = capabilities
        self.by_token: dict[int, TrackedDelivery] = {}
        self.by_delivery: dict[Delivery, TrackedDelivery] = {}
        self._ledgers = ledgers
        self._budgets: dict[Destination, HoldBudget] = {}
        self._run_id = run_id
        self._tokens = itertools.count(1)

    @property
    def waiting_for_answers(self) -> int:
        """Return the number of deliveries that end by themselves once a broker has answered. Any thread."""
        return sum(tracked.state in (State.MOVING, State.SETTLING) for tracked in list(self.by_token.values()))

    def budget_of(self, source: Destination) -> HoldBudget:
        """Return the one hold budget of a source. Any thread."""
        found = self._budgets.get(source)
        return found if found is not None else self._budgets.setdefault(source, HoldBudget(source, self.plans))

    def awaits(self, delivery: Delivery) -> bool:
        """Return whether a delivery without any mark may be one that went back to the broker. Any thread."""
        ledger = self._ledgers[delivery.destination]
        if self.capabilities.marks_returns or not ledger.back:
            return False
        key = identity.message_key(delivery, NO_PAST)
        if key is None or key.startswith(identity.TWIN):
            return ledger.awaits_twin(identity.twin_key(delivery, self.capabilities))
        return identity.ledger_key(key, NO_PAST) in ledger.back

    def claim(self, delivery: Delivery, past: Past, at: Moment) -> LedgerEntry | None:
        """Return the entry whose count a redelivered message without an id takes over, if there is one."""
        if not delivery.redelivered and self.capabilities.marks_returns:
            return None
        if identity.message_key(delivery, past) is not None:
            return None
        longest = self.plans[delivery.destination].ways.longest
        timeout_us = round(self.capabilities.ack_timeout * 1e6) if self.capabilities.ack_timeout else 0
        oldest_us = at.us - round(longest * 1e6) - (timeout_us or CLAIM_MARGIN_US)
        twin = identity.twin_key(delivery, self.capabilities)
        return self._ledgers[delivery.destination].claim(twin, oldest_us)

    def open(
        self,
        delivery: Delivery,
        plan: SourcePlan,
        past: Past,
        state: State,
        claimed: LedgerEntry | None = None,
        since: float = 0.0,
    ) -> TrackedDelivery:
        """Track a delivery, with what the ledger knows of its message, or with the entry that it has claimed."""
        token = next(self._tokens)
        key = identity.message_key(delivery, past)
        nameless = key is None or (key.startswith(identity.TWIN) and not past.lineage)
        if claimed is not None:
            key, past = claimed.lineage, claimed.past
        elif key is None:
            key = f"{identity.twin_key(delivery, self.capabilities)}{self._run_id:.16}{token:016x}"
        if nameless:
            delivery.own_key = key
        ledger = self._ledgers[delivery.destination]
        known: str | None = (entry_key := identity.ledger_key(key, past))
        expected = entry_key in ledger.back
        entry, same = _entry(ledger, entry_key, LedgerEntry(key, past, identity.digest(delivery)), delivery)
        if entry is None:
            known = None
        else:
            past = entry.past
        # What shares its key with another message has a lineage of its own, which keeps their copies apart.
        lineage = key if same else f"{self._run_id}{token:016x}"
        tracked = TrackedDelivery(
            token,
            delivery,
            plan.for_message(delivery, past, lineage),
            past,
            state,
            lineage,
            known,
            entry,
            ledger,
            self.budget_of(delivery.destination),
            nameless,
            expected,
            since=since,
        )
        if entry is not None:
            entry.tracked, tracked.failure = tracked, entry.failure
        past.expires_at_us = past.expires_at_us or delivery.properties.expires_at_us
        delivery.past, delivery.failures, delivery.known = past, past.failures, True
        self.by_token[token] = tracked
        self.by_delivery[delivery] = tracked
        return tracked

    def close(self, tracked: TrackedDelivery) -> None:
        """Track a delivery no longer. Its entry stays in the ledger."""
        self.by_token.pop(tracked.token, None)
        if self.by_delivery.get(tracked.delivery) is tracked:
            del self.by_delivery[tracked.delivery]
        if tracked.entry is not None and tracked.entry.tracked is tracked:
            tracked.entry.tracked = None
            unsent = not (tracked.confirmed or tracked.doubt or tracked.open)
            if tracked.nameless and unsent and tracked.is_retry:
                tracked.entry.transfer = None  # no retry of it is anywhere: its count can be taken over


def _entry(ledger: Ledger, key: str, new: LedgerEntry, delivery: Delivery) -> tuple[LedgerEntry | None, bool]:
    """Return the ledger's entry, None if a different message holds this key; and whether it is the same message anyway.

    `new` becomes the entry of a message that has none. A copy that was sent twice is the same message. A producer's
    duplicate is not.
    """
    past, back = new.past, key in ledger.back
    entry = ledger.open(key, new)
    live = entry.tracked is not None and entry.tracked.state not in (State.SETTLED, State.ABANDONED)
    if live or entry.digest != new.digest:
        return None, bool(past.lineage) and identity.same_body(entry.digest, new.digest)
    if entry is not new and not (delivery.redelivered or past.lineage or back):  # a new message that has a known id
        ledger.forget(key)
        entry = ledger.open(key, new)
    ledger.back.discard(key)
    if past.failures > entry.past.failures:
        entry.past = past
    return entry, True


class OrphanedRuns:
    """Handlers still running for a delivery whose connection was lost.

    The redelivery waits for the handler to finish, and takes over its result. Keyed by ledger key: at most one orphaned
    run and one waiting redelivery for each message.
    """

    def __init__(self) -> None:
        self._runs: dict[str, TrackedDelivery] = {}  # abandoned, and their handlers still run
        self._waiting: dict[Delivery, TrackedDelivery] = {}  # such a handler's delivery -> the redelivery that waits

    def waits(self, tracked: TrackedDelivery) -> bool:
        """Return whether a handler still runs for this redelivery's message; if so, it waits from now on."""
        running = self._runs.get(tracked.key or "")
        if running is not None:
            self._waiting[running.delivery] = tracked
        return running is not None

    def lost(self, tracked: TrackedDelivery) -> bool:
        """Note that a running delivery was lost.

        Return whether it only waited for the handler of an earlier delivery, and does so no longer.
        """
        if tracked.key is None:
            return False
        first = self._runs.setdefault(tracked.key, tracked)
        if first is tracked or self._waiting.get(first.delivery) is not tracked:
            return False
        del self._waiting[first.delivery]
        return True

    def ended(self, tracked: TrackedDelivery) -> TrackedDelivery | None:
        """Note that a handler is over, or is never run. Return the redelivery that waited for it."""
        if tracked.key is None or self._runs.get(tracked.key) is not tracked:
            return None
        del self._runs[tracked.key]
        return self._waiting.pop(tracked.delivery, None)
