# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Opens and closes tracked deliveries, with what the ledger knows of their messages. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ..adapter.capabilities import Capabilities
from ..clock import Moment
from ..message import Delivery, Destination, Past
from . import identity
from .ledger import CLAIM_MARGIN, HoldBudget, Ledger, LedgerEntry, TrackedDelivery
from .plan import NO_PAST, SourcePlan
from .states import State


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
        age = self.plans[delivery.destination].ways.longest + (self.capabilities.ack_timeout or CLAIM_MARGIN)
        twin = identity.twin_key(delivery, self.capabilities)
        return self._ledgers[delivery.destination].claim(twin, Moment(at.mono - age, at.wall - age))

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
    """Tracks handlers that still run for a delivery whose connection was lost.

    The redelivery waits for the handler to finish, and takes over its result. The runs are kept by ledger key: at most
    one orphaned run and one waiting redelivery for each message.
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
