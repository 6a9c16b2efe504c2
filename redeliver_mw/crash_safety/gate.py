# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Hands a message to a handler only after the database has recorded this, so that counts survive a crash.

The adapter passes deliveries to the gate. The gate reads what the database knows of them, marks them there, a whole
batch in one transaction, and only then hands them on. A message that a dead program has left marked is a *suspect*: it
runs while nothing else of this app runs, and is marked accordingly. A message with such a mark, whose program died, is
the culprit, and the interceptor is informed. The end of a run is written with the next batch: a settled message does
not come back, and its line is garbage.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..adapter.protocol import Adapter
from ..clock import Clock, Moment
from ..errors import RedeliverError
from ..failure import CRASH
from ..message import Delivery, Destination
from ..timers import SingleTimer
from . import rows
from .isolation import NONE, Admission, Pending, PendingBatch, PendingPlace, SuspectIsolation
from .lookup import LedgerLookup, LookupResult, PersistentLedger
from .store import Changes, LedgerStore

log = logging.getLogger("redeliver_mw.limbo")

BEAT = 2.5  # seconds between two heartbeats
LOOK = 0.5  # seconds between two checks of conditions that change with time only
TROUBLED_REST = 1.0
ENOUGH, GATHER = 30, 0.005  # deliveries that are with handlers or about to be; seconds
PRUNE_EVERY = 1000  # lines written
GRACE = 30.0  # seconds that a line is kept after its settlement was written, which may be lost on its way
BARE: dict[str, Any] = {
    "failures": 0,
    "done": 0,
    "not_before_us": None,
    "first_failed_us": None,
    "last_failed_us": None,
    "last_error": None,
    "digest": None,
    "rest": None,
}


class GateClient(Protocol):
    """Receives the deliveries that the gate lets through. Called on the gate's thread."""

    def awaits(self, delivery: Delivery, /) -> bool: ...  # the delivery has a past, although no header shows it
    def admit(self, batch: Sequence[Delivery], /) -> None: ...  # with a past, or without a key to find one
    def hand(self, batch: Sequence[Delivery], /, *, first: bool) -> None: ...  # to its handler; all of one source
    def can_run(self, source: Destination, /) -> bool: ...
    def in_trouble(self, why: str, /) -> None: ...  # empty: the trouble is over


class WriteBuffer:
    """Buffers ledger changes and finished runs until the next transaction. Not thread-safe.

    `names` are the texts of the sources. `written` removes the changes that a transaction contained.
    """

    def __init__(self, names: Mapping[Destination, str]) -> None:
        self._names = names
        self.closing = False  # no later transaction follows: lines that are no longer needed go with this one
        self._lines: dict[PendingPlace, dict[str, Any]] = {}
        self._unmarked: set[PendingPlace] = set()
        self._ended: list[int] = []  # batches
        self._over: deque[tuple[float, PendingPlace]] = deque()  # with the time from which a line is no longer needed

    def changed(self, place: PendingPlace, line: dict[str, Any]) -> None:
        self._lines[place] = line

    def settled(self, place: PendingPlace, now: float) -> None:
        self._over.append((now + GRACE, place))

    def ended(self, one: Pending) -> None:
        if one.batch is None:
            self._unmarked.add(one.place)
        elif not one.batch.left:
            self._ended.append(one.batch.number)

    @property
    def next_over(self) -> float:
        return self._over[0][0] if self._over else float("inf")

    def is_due(self, now: Moment) -> bool:
        return bool(self._lines or self._unmarked or self._ended) or self._is_over(now)

    def changes(
        self,
        begun: Iterable[PendingBatch],
        more: Mapping[PendingPlace, dict[str, Any]],
        marks: Mapping[PendingPlace, int],
        now: Moment,
        at_us: int,
    ) -> Changes:
        """Return the changes to write at `now`, which is `at_us` microseconds since 1970.

        `more`: lines that are written for their marks, unless they have changed anyway.
        """
        names, lines = self._names, {**more, **self._lines}
        over = [place for at, place in self._over if at <= now.mono or self.closing]
        return Changes(
            lines=[
                BARE
                | line
                | {
                    "source": names[source],
                    "message": key,
                    "mark": marks.get((source, key), NONE),
                    "changed_us": at_us,
                }
                for (source, key), line in lines.items()
            ],
            unmarked=[(names[source], key) for source, key in self._unmarked - lines.keys()],
            over=[(names[source], key) for source, key in over if (source, key) not in marks],
            begun=[(batch.number, names[batch.source], [one.key for one in batch.members]) for batch in begun],
            ended=list(self._ended),
            at_us=at_us,
        )

    def written(self, now: Moment) -> None:
        self._lines.clear()
        self._unmarked.clear()
        self._ended.clear()
        while self._is_over(now):
            self._over.popleft()

    def _is_over(self, now: Moment) -> bool:
        return bool(self._over) and (self.closing or self.next_over <= now.mono)


class CrashSafetyGate:
    """Guards one App's handlers against crashes. `driven`: the clock is hand-driven, so there is no thread."""

    _client: GateClient

    def __init__(
        self,
        lines: LedgerStore,
        ledgers: Mapping[Destination, PersistentLedger],
        adapter: Adapter,
        clock: Clock,
        *,
        driven: bool = False,
    ) -> None:
        self._lines, self._ledgers, self._adapter, self._clock = lines, ledgers, adapter, clock
        self._names = {source: str(source) for source in ledgers}
        self._driven = driven
        self._recognition = LedgerLookup(lines, ledgers, adapter.capabilities)
        self._isolation = SuspectIsolation()
        self._news = threading.Event()
        self._inbox: deque[tuple[str, Any]] = deque()
        self._arrivals: list[Delivery] = []  # not looked up yet
        self._unwritten = WriteBuffer(self._names)
        self._beat_at = float("inf") if driven else 0.0  # on a hand-driven clock no other program is there
        self._written = 0
        self._turning = self._stopped = self._closed = False
        self._in_trouble = ""
        self._alarm = SingleTimer(adapter.call_later, self._drive)
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Open the database. Raises ConfigError or LimboError if it is not available."""
        self._lines.open(self._clock.now().us)

    def start(self, client: GateClient) -> None:
        """Begin to let deliveries through."""
        self._client = client
        self._prune()
        if not self._driven:
            self._thread = threading.Thread(target=self._work, name="redeliver-gate", daemon=True)
            self._thread.start()

    # -- any thread -------------------------------------------------------------------------------

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        self._say("arrived", batch)

    def run(self, delivery: Delivery, /) -> None:
        self._say("run", delivery)

    def ended(self, delivery: Delivery, /) -> None:
        self._inbox.append(("ended", delivery))
        if self._driven or self._isolation.crowded:
            self._wake()  # otherwise this can wait until the next batch comes

    def fed(self) -> None:
        """Copy what the interceptor has changed. Called under its lock; the changes are written later."""
        for source, ledger in self._ledgers.items():
            while ledger.changed:
                key, over = ledger.changed.popitem()
                entry = ledger.find(key)
                place = source, rows.key_of_line(key)
                if entry is not None:
                    self._say("changed", (place, rows.line_of(entry)))
                if over:
                    self._say("over", place)

    def stop(self) -> list[Delivery]:
        self._stopped = True
        coming = [about for what, about in self._inbox.copy() if what == "run"]
        return self._isolation.held_back() + coming

    def close(self, timeout: float) -> None:
        """Write what is left to write.

        No message is with a handler any more, as far as the caller waited for the handlers.
        """
        self._closed = self._unwritten.closing = True
        self._alarm.off()
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._thread is None or not self._thread.is_alive():
            self.run_once()
            self._lines.close()

    def _say(self, what: str, about: Any) -> None:
        self._inbox.append((what, about))
        self._wake(soon=what in ("arrived", "run"))

    def _wake(self, *, soon: bool = False) -> None:
        if not self._driven:
            self._news.set()
        elif not self._turning and not self._closed and (soon or not self._alarm.is_set):
            self._alarm.set(0.0)

    # -- the gate's thread --------------------------------------------------------------------------

    def _work(self) -> None:
        rest = 0.0
        while not self._closed:
            self._news.wait(rest)
            if self._isolation.crowd - len(self._inbox) > ENOUGH:
                # The handlers have enough to do: deliveries that arrive meanwhile join the same transaction.
                time.sleep(GATHER)
            self._news.clear()
            try:
                rest = self.run_once()
            except Exception:  # a bug of ours must not leave messages waiting forever
                log.exception("%s: this is a bug; going on", self._lines.where)
                rest = TROUBLED_REST

    def _drive(self) -> None:
        rest = self.run_once()
        if self._inbox or rest < float("inf"):
            self._alarm.set(0.0 if self._inbox else rest)

    def run_once(self) -> float:
        """Do all that is due, in one transaction. Return after how many seconds to look again."""
        self._turning = True
        try:
            now = self._clock.now()
            at_us = now.us
            self._take_inbox(now.mono)
            return self._do(now, at_us)
        except RedeliverError as error:
            self._trouble(str(error))
            return TROUBLED_REST
        finally:
            self._turning = False

    def _take_inbox(self, now: float) -> None:
        while self._inbox:
            what, about = self._inbox.popleft()
            if what == "arrived":
                self._arrivals += about
            elif what == "run":
                crashed = (about.past.last_error or "").startswith(f"{CRASH.type}: ")
                self._isolation.come(self._recognition.pending(about), now, suspect=crashed)
            elif what == "ended":
                if (one := self._isolation.end(about, now)) is not None:
                    self._unwritten.ended(one)
            elif what == "changed":
                self._unwritten.changed(*about)
            else:
                self._unwritten.settled(about, now)

    # -- one transaction ----------------------------------------------------------------------------

    def _do(self, now: Moment, at_us: int) -> float:
        beats = now.mono >= self._beat_at
        if not (self._arrivals or self._unwritten.is_due(now) or beats or self._choose([], now).ones):
            return self._rest(now)
        with self._lines.writing() as connection:
            if beats:
                self._lines.beat(connection, at_us)
            found = self._recognition.look_up(connection, self._arrivals, now.mono, self._client.awaits)
            choice = self._choose(found.fresh, now, hold_back=bool(found.suspects))
            changes = self._to_write(choice, now, at_us)
            self._lines.write(connection, changes)
        self._unwritten.written(now)
        self._arrivals = found.undecided
        self._trouble("")
        if beats:
            self._beat_at = now.mono + BEAT
        self._let_through(found, choice, now)
        self._written += len(changes.lines) + len(changes.begun)
        if self._written >= PRUNE_EVERY:
            self._written = 0
            self._prune()
        return self._rest(self._clock.now())

    def _choose(self, fresh: Sequence[Pending], now: Moment, *, hold_back: bool = False) -> Admission:
        """Choose the deliveries to admit. New suspects go first, because the isolation does not know them yet."""
        if self._stopped or hold_back:
            return Admission([], NONE, fresh=fresh)
        return self._isolation.choose(fresh, now.mono, self._client.can_run)

    def _to_write(self, choice: Admission, now: Moment, at_us: int) -> Changes:
        marked = {place: self._line_at(place, choice) for place in choice.marks}
        return self._unwritten.changes(choice.batches, marked, self._isolation.marks | choice.marks, now, at_us)

    def _line_at(self, place: PendingPlace, choice: Admission) -> dict[str, Any]:
        one = self._isolation.line_of(place, choice)
        return {} if one is None else self._recognition.line_of(one)

    def _let_through(self, found: LookupResult, choice: Admission, now: Moment) -> None:
        self._isolation.let(choice, now.mono)
        for one, line, culprit in found.entries:
            self._recognition.prime(one, line, culprit=culprit)
        for delivery, line, culprit in found.unclaimed:
            self._recognition.prime_without_id(delivery, line, culprit=culprit)
        self._isolation.suspected |= {one.suspect_place for one in found.suspects}
        if found.past:
            self._client.admit([one.delivery for one in found.past])
        going: dict[tuple[Destination, bool], list[Delivery]] = {}
        for one in choice.ones:
            going.setdefault((one.delivery.destination, one.delivery.known), []).append(one.delivery)
        for (_, first), some in going.items():
            self._client.hand(some, first=first)

    def _rest(self, now: Moment) -> float:
        rest = max(0.0, min(self._beat_at, self._unwritten.next_over) - now.mono)
        return min(rest, LOOK) if self._arrivals or self._isolation.stuck else rest

    def _prune(self) -> None:
        size = min(ledger.size for ledger in self._ledgers.values())
        try:
            self._lines.prune(map(str, self._ledgers), size, self._clock.now().us)
        except RedeliverError as error:
            self._trouble(str(error))

    def _trouble(self, what: str) -> None:
        """Log trouble when it begins, and when it is over."""
        if what and not self._in_trouble:
            log.error("%s. No message is handed to a handler until that is over; nothing is lost", what)
            self._client.in_trouble(what)
        elif self._in_trouble and not what:
            log.warning("%s: works again", self._lines.where)
            self._client.in_trouble("")
        self._in_trouble = what
