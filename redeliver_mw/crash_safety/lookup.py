# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks up arriving deliveries in the database: no past, a past, or perhaps the cause of a program's death."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..adapter.capabilities import Capabilities
from ..message import Delivery, Destination, Past
from ..redelivery import identity
from ..redelivery import ledger as redelivery_ledger
from ..redelivery.headers import read_history_headers
from . import rows
from .isolation import ALONE, NONE, Pending
from .store import LedgerStore

NO_PAST = Past()  # read only


class PersistentLedger(redelivery_ledger.MemoryLedger):
    """Notes which of its entries the database has to store. Used under the interceptor's lock."""

    def __init__(self, size: int = redelivery_ledger.LEDGER_SIZE) -> None:
        super().__init__(size)
        self.size = size
        self.changed: dict[str, bool] = {}


@dataclass(slots=True)
class LookupResult:
    """Holds arrivals, sorted. Every delivery with an entry, and every suspect, has a past."""

    fresh: list[Pending] = field(default_factory=list)
    past: list[Pending] = field(default_factory=list)
    undecided: list[Delivery] = field(default_factory=list)  # the program that ran it alone may be dead
    entries: list[tuple[Pending, Any, bool]] = field(
        default_factory=list
    )  # with its line, and whether the message is the culprit
    suspects: list[Pending] = field(default_factory=list)
    # Lines of messages without an id, each with an identical message that may claim the line, and whether the line's
    # own message is the culprit.
    unclaimed: list[tuple[Delivery, Any, bool]] = field(default_factory=list)


class LedgerLookup:
    """Finds the past of deliveries. `awaits` returns whether a delivery has a past although no header shows it."""

    def __init__(
        self, lines: LedgerStore, ledgers: Mapping[Destination, PersistentLedger], capabilities: Capabilities
    ) -> None:
        self._lines, self._ledgers, self._capabilities = lines, ledgers, capabilities
        self._marks_returns = capabilities.marks_returns

    def pending(self, delivery: Delivery, *, ours: bool = True) -> Pending:
        """Return the delivery with the key of its line. `ours`: the delivery may carry headers of ours."""
        past = read_history_headers(delivery) if ours else NO_PAST
        key = identity.message_key(delivery, past)
        if key is None:
            twin = identity.twin_key(delivery, self._capabilities)
            return Pending(delivery, twin, twin)
        line = rows.key_of_line(identity.ledger_key(key, past))
        nameless = key.startswith(identity.TWIN) and not past.lineage
        return Pending(delivery, line, key[: identity.TWIN_CHARS] if nameless else "")

    def look_up(
        self, connection: Any, arrivals: Sequence[Delivery], now_mono: float, awaits: Callable[[Delivery], bool]
    ) -> LookupResult:
        """Separate the arrivals with a past from those without.

        Where the broker marks redeliveries, only marked deliveries are looked up, so a new message costs no query.
        """
        found, asked = LookupResult(), dict[Destination, list[Pending]]()
        for delivery in arrivals:
            ours = delivery.reader.marked(delivery.native)
            one = self.pending(delivery, ours=ours)
            if ours or delivery.redelivered or not self._marks_returns:
                asked.setdefault(delivery.destination, []).append(one)
            else:
                (found.past if awaits(delivery) else found.fresh).append(one)
        for source, some in asked.items():
            keys = sorted({one.key for one in some if not one.twin})
            lines = self._lines.find(connection, str(source), keys) if keys else {}
            twins = self._twins(connection, source, some)
            had = self._lines.in_batches(connection, str(source))
            runs = {line.run for line in lines.values() if line.mark != NONE} | {*had.values()}
            runs |= {line.run for line in itertools.chain(*twins.values())}
            dead = self._lines.dead(connection, runs, now_mono) if runs else {}
            for one in some:
                if one.twin:
                    lines_of_it = twins.pop(one.twin, [])
                    if any(line.mark == ALONE and dead.get(line.run) is None for line in lines_of_it):
                        found.undecided.append(one.delivery)
                        continue
                    left = [x for x in lines_of_it if dead.get(x.run) and self._lines.take_over(connection, x)]
                    in_dead_batch = dead.get(had.get(one.key, "")) is True
                    known = self._sort_without_id(found, one, left, in_dead_batch) or awaits(one.delivery)
                    (found.past if known else found.fresh).append(one)
                    continue
                past = self._sort(found, one, lines.get(one.key), dead.get(had.get(one.key, "")) is True, dead)
                if past is not None:
                    (found.past if past or awaits(one.delivery) else found.fresh).append(one)
        return found

    def _twins(self, connection: Any, source: Destination, some: Sequence[Pending]) -> dict[str, list[Any]]:
        """Return the lines that messages without an id may claim, by twin key."""
        asked = {one.twin for one in some if one.twin}
        found: dict[str, list[Any]] = {}
        for line in self._lines.without_ids(connection, str(source)) if asked else ():
            if (twin := line.message[: identity.TWIN_CHARS]) in asked:
                found.setdefault(twin, []).append(line)
        return found

    def _sort_without_id(
        self,
        found: LookupResult,
        one: Pending,
        left: Sequence[Any],
        in_dead_batch: bool,
    ) -> bool:
        """Return whether the message has a past.

        `left`: lines of dead runs for identical messages; a live run keeps its lines.
        """
        found.unclaimed += [(one.delivery, line, line.mark == ALONE) for line in left]
        if in_dead_batch or any(line.mark != NONE for line in left):
            found.suspects.append(one)
        return one.delivery.redelivered or in_dead_batch or bool(left)

    def _sort(
        self, found: LookupResult, one: Pending, line: Any, in_dead_batch: bool, dead: Mapping[str, bool | None]
    ) -> bool | None:
        """Return whether the message has a past; None if this is not known yet."""
        if line is None or line.run == self._lines.run:
            if in_dead_batch and line is None:
                found.suspects.append(one)
            marked = one.delivery.redelivered or one.delivery.reader.marked(one.delivery.native)
            return line is not None or in_dead_batch or marked
        died = dead.get(line.run) if line.mark != NONE else False
        if line.mark == ALONE and died is None:
            found.undecided.append(one.delivery)
            return None
        if died or in_dead_batch:
            found.suspects.append(one)
        found.entries.append((one, line, bool(died and line.mark == ALONE)))
        return True

    def prime(self, one: Pending, line: Any, *, culprit: bool) -> None:
        """Put the past from a line into the ledger, for the interceptor to find."""
        delivery, ledger = one.delivery, self._ledgers[one.delivery.destination]
        past = read_history_headers(delivery)
        lineage = identity.message_key(delivery, past)
        assert lineage is not None
        key = identity.ledger_key(lineage, past)
        there = ledger.find(key)
        if there is not None and there.tracked is not None:
            return
        entry = rows.entry_of(line, lineage, past, identity.digest(delivery))
        entry.crashed = culprit
        ledger.forget(key)
        ledger.open(key, entry)
        if not (self._marks_returns or entry.done):
            ledger.back.add(key)  # the message was here before, perhaps without a mark that shows it

    def prime_without_id(self, delivery: Delivery, line: Any, *, culprit: bool) -> None:
        """Put the past from a line into the ledger, for `delivery` or another identical message to claim."""
        ledger, key = self._ledgers[delivery.destination], line.message
        if ledger.find(key) is None:
            entry = rows.entry_of(line, key.partition("/")[0], Past(), identity.digest(delivery))
            entry.crashed = culprit
            ledger.open(key, entry)
            if not self._marks_returns:
                ledger.back.add(key)

    def line_of(self, one: Pending) -> dict[str, Any]:
        """Return the current contents of the delivery's line."""
        past = read_history_headers(one.delivery)
        key = identity.message_key(one.delivery, past)
        entry = key and self._ledgers[one.delivery.destination].find(identity.ledger_key(key, past))
        return rows.line_of(entry) if entry else {}
