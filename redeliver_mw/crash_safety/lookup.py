# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the database knows of deliveries that arrive: nothing, a past, or that a program may have died of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..message import Delivery, Destination, Past
from ..redelivery import ledger as redelivery_ledger
from . import rows
from .isolation import ALONE, NONE, Pending
from .store import LedgerStore

NO_PAST = Past()  # read only


class PersistentLedger(redelivery_ledger.MemoryLedger):
    """A ledger that notes which of its entries the database has to hear of. Under the interceptor's lock."""

    def __init__(self, size: int = redelivery_ledger.LEDGER_SIZE) -> None:
        super().__init__(size)
        self.size = size
        self.changed: dict[str, bool] = {}  # key -> is it over?

    def save(self, key: str, /) -> None:
        self.changed[key] = False

    def over(self, key: str, /) -> None:
        self.changed[key] = True


@dataclass(slots=True)
class LookupResult:
    """Arrivals, sorted. Whoever has an entry or is a suspect has a past."""

    fresh: list[Pending] = field(default_factory=list)
    past: list[Pending] = field(default_factory=list)
    undecided: list[Delivery] = field(default_factory=list)  # is the program dead that ran it alone?
    entries: list[tuple[Pending, Any, bool]] = field(
        default_factory=list
    )  # with its line, and whether it is the culprit
    suspects: list[Pending] = field(default_factory=list)


class LedgerLookup:
    """`awaits` tells of deliveries that have a past although nothing on them says so."""

    def __init__(
        self, lines: LedgerStore, ledgers: Mapping[Destination, PersistentLedger], *, marks_returns: bool
    ) -> None:
        self._lines, self._ledgers, self._marks_returns = lines, ledgers, marks_returns

    def look_up(
        self, connection: Any, arrivals: Sequence[Delivery], now_mono: float, awaits: Callable[[Delivery], bool]
    ) -> LookupResult:
        """Tell the arrivals with a past from those without. Where the broker marks what comes back, only such is
        asked for: a message that is new here costs no question."""
        found, asked = LookupResult(), dict[Destination, list[Pending]]()
        for delivery in arrivals:
            ours = delivery.reader.marked(delivery.native)
            one = Pending(
                delivery, key_of(delivery, redelivery_ledger.read_history_headers(delivery) if ours else NO_PAST)
            )
            if one.key and (ours or delivery.redelivered or not self._marks_returns):
                asked.setdefault(delivery.destination, []).append(one)
            elif one.key and not awaits(delivery):
                found.fresh.append(one)
            else:
                found.past.append(one)
        for source, some in asked.items():
            lines = self._lines.find(connection, str(source), sorted({one.key for one in some}))
            had = self._lines.in_batches(connection, str(source))
            runs = {line.run for line in lines.values() if line.mark != NONE} | {*had.values()}
            dead = self._lines.dead(connection, runs, now_mono) if runs else {}
            for one in some:
                past = self._sort(found, one, lines.get(one.key), dead.get(had.get(one.key, "")) is True, dead)
                if past is not None:
                    (found.past if past or awaits(one.delivery) else found.fresh).append(one)
        return found

    def _sort(
        self, found: LookupResult, one: Pending, line: Any, in_dead_batch: bool, dead: Mapping[str, bool | None]
    ) -> bool | None:
        """Has it a past? None: that cannot be said yet."""
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
        """Put what a line says into the ledger, for the interceptor to find."""
        delivery, ledger = one.delivery, self._ledgers[one.delivery.destination]
        past = redelivery_ledger.read_history_headers(delivery)
        lineage = redelivery_ledger.message_key(delivery, past)
        assert lineage is not None
        key = redelivery_ledger.ledger_key(lineage, past)
        there = ledger.find(key)
        if there is not None and there.story is not None:
            return
        entry = rows.entry_of(line, lineage, past, redelivery_ledger.digest(delivery))
        entry.crashed = culprit
        ledger.forget(key)
        ledger.open(key, lambda: entry)
        if not (self._marks_returns or entry.done):
            ledger.back.add(key)  # it is the one that was here before, if perhaps without a mark that says so

    def line_of(self, one: Pending) -> dict[str, Any]:
        """What its line is to say now."""
        past = redelivery_ledger.read_history_headers(one.delivery)
        key = redelivery_ledger.message_key(one.delivery, past)
        entry = key and self._ledgers[one.delivery.destination].find(redelivery_ledger.ledger_key(key, past))
        return rows.line_of(entry) if entry else {}


def key_of(delivery: Delivery, past: Past) -> str:
    """Of its line; empty for a message without any id. `past`: what its headers say."""
    key = redelivery_ledger.message_key(delivery, past)
    return "" if key is None else rows.key_of_line(redelivery_ledger.ledger_key(key, past))
