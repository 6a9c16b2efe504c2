# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts that survive a crash: no handler gets a message before it is on record that it has it.

Deliveries go from the adapter to the gate, which reads what the database knows of them, marks them there, a whole
batch in one transaction, and only then hands them on. A message that is found marked by a program that has died is
a *suspect*: it is run while nothing else of this app is, and marked as that. One that was marked so, and its
program died, is the culprit: the interceptor is told. That a run has ended is written with the next batch: what
was settled does not come back, and its line is garbage.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import counting
from .adapter import Adapter
from .errors import RedeliverError
from .failure import CRASH
from .limbo import known
from .limbo.ledger import ALONE, NONE, TOGETHER, Changes, Lines
from .message import Delivery, Destination, Past
from .ports import Clock

log = logging.getLogger("redeliver_mw.limbo")

PATIENCE = 60.0  # seconds that a suspect may keep others waiting, and that others may keep a suspect waiting
BEAT = 2.5
GRACE = 30.0  # seconds that a line is kept after its settle was written: it may be lost on its way
LOOK = 0.5  # seconds between two looks at what only time changes
TROUBLED_REST = 1.0
PRUNE_EVERY = 1000  # lines written

NO_PAST = Past()  # read only


class Boss(Protocol):
    """Who is told what the gate lets through. Called on the gate's thread."""

    def awaits(self, delivery: Delivery, /) -> bool: ...  # has it a past, although nothing on it says so?
    def admit(self, batch: Sequence[Delivery], /) -> None: ...  # with a past, or none to be known by
    def hand(self, batch: Sequence[Delivery], /, *, first: bool) -> None: ...  # to its handler; all of one source
    def can_run(self, source: Destination, /) -> bool: ...
    def in_trouble(self, why: str, /) -> None: ...  # empty: it is over


class LastingLedger(counting.MemoryLedger):
    """A ledger that notes which of its entries the database has to hear of. Under the interceptor's lock."""

    def __init__(self, size: int = counting.LEDGER_SIZE) -> None:
        super().__init__(size)
        self.changed: dict[str, bool] = {}  # key -> is it over?
        self.size = size

    def save(self, key: str, /) -> None:
        self.changed[key] = False

    def over(self, key: str, /) -> None:
        self.changed[key] = True


@dataclass(slots=True, eq=False)
class _One:
    """A delivery on its way through the gate."""

    delivery: Delivery
    key: str  # of its line; empty for a message without any id
    batch: _Batch | None = None  # of a message without a past, once it is handed on

    @property
    def place(self) -> tuple[Destination, str]:
        return self.delivery.destination, self.key


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages of one source without a past, handed on together."""

    number: int
    source: Destination
    members: list[_One]
    left: int


@dataclass(slots=True)
class _Turn:
    """What one transaction is about."""

    fresh: list[_One] = field(default_factory=list)
    known: list[_One] = field(default_factory=list)
    undecided: list[Delivery] = field(default_factory=list)
    entries: list[tuple[_One, Any, bool]] = field(default_factory=list)  # with its line, and whether it is the culprit
    suspects: list[_One] = field(default_factory=list)


class Gate:
    """One for an App. `driven`: by a clock that is moved by hand, so there is no thread."""

    def __init__(
        self, lines: Lines, ledgers: Mapping[Destination, LastingLedger], adapter: Adapter, clock: Clock, *,
        driven: bool = False,
    ) -> None:  # fmt: skip
        self._lines, self._ledgers, self._adapter, self._clock = lines, ledgers, adapter, clock
        self._driven = driven
        self._boss: Boss
        self._news = threading.Event()
        self._inbox: deque[tuple[str, Any]] = deque()
        self._arrivals: list[Delivery] = []  # not looked up yet
        self._changes: dict[tuple[Destination, str], dict[str, Any]] = {}  # unwritten lines
        self._over: deque[tuple[float, tuple[Destination, str]]] = deque()  # since when its line is of no use
        self._unmarked: set[tuple[Destination, str]] = set()
        self._again: deque[_One] = deque()  # with a past, before all others
        self._waiting: deque[_One] = deque()
        self._suspects: deque[_One] = deque()
        self._suspected: set[tuple[Destination, str]] = set()
        self._out: dict[Delivery, _One] = {}  # handed on, and not ended
        self._alone: _One | None = None
        self._marks: dict[tuple[Destination, str], int] = {}  # of those handed on that have lines of their own
        self._numbers = itertools.count(1)
        self._ended: list[int] = []  # batches
        self._since = 0.0  # monotonic: since when a suspect runs alone, or waits to
        self._beat_at = float("inf") if driven else 0.0  # who moves the clock by hand is alone
        self._written = 0
        self._turning = self._stopped = self._closed = False
        self._in_trouble = ""
        self._forget: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """ConfigError, LimboError where the database cannot be had."""
        self._lines.open(self._clock.now().us)

    def start(self, boss: Boss) -> None:
        """From here on deliveries are let through."""
        self._boss = boss
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
        if self._driven or self._again or self._waiting or self._suspects or self._alone is not None:
            self._wake()  # else it has time until the next batch comes

    def fed(self) -> None:
        """What the interceptor has changed is copied, under its lock, and written later."""
        for source, ledger in self._ledgers.items():
            while ledger.changed:
                key, over = ledger.changed.popitem()
                place, entry = (source, known.key_of_line(key)), ledger.find(key)
                if entry is not None:
                    self._say("changed", (place, known.line_of(entry)))
                if over:
                    self._say("over", place)

    def stop(self) -> list[Delivery]:
        self._stopped = True
        waiting = [*self._again.copy(), *self._waiting.copy(), *self._suspects.copy()]  # a copy is made at one stroke
        coming = [about for what, about in self._inbox.copy() if what == "run"]
        return [one.delivery for one in waiting] + coming

    def close(self, timeout: float) -> None:
        """Write what there is to be written: nothing is in a handler any more, as far as anybody waited for it."""
        self._closed = True
        self._forget_turn()
        self._wake()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._thread is None or not self._thread.is_alive():
            self.turn()
            self._forget_turn()
            self._lines.close()

    def _say(self, what: str, about: Any) -> None:
        self._inbox.append((what, about))
        self._wake()

    def _wake(self) -> None:
        if not self._driven:
            self._news.set()
        elif not self._turning and self._forget is None and not self._closed:
            self._forget = self._adapter.call_later(0.0, self._drive)

    # -- the gate's thread --------------------------------------------------------------------------

    def _work(self) -> None:
        rest = 0.0
        while not self._closed:
            self._news.wait(rest)
            self._news.clear()
            try:
                rest = self.turn()
            except Exception:  # a bug of ours must not leave messages lying
                log.exception("%s: this is a bug; going on", self._lines.where)
                rest = TROUBLED_REST

    def _drive(self) -> None:
        self._forget = None
        rest = self.turn()
        if self._inbox or rest < GRACE + BEAT:
            self._forget_turn()
            self._forget = self._adapter.call_later(0.0 if self._inbox else rest, self._drive)

    def _forget_turn(self) -> None:
        if self._forget is not None:
            self._forget()
            self._forget = None

    def turn(self) -> float:
        """Do what there is to be done, in one transaction; answers in how many seconds to look again."""
        if self._turning:
            return BEAT
        self._turning = True
        try:
            self._take_inbox()
            return self._do()
        except RedeliverError as error:
            self._trouble(str(error))
            return TROUBLED_REST
        finally:
            self._turning = False

    def _take_inbox(self) -> None:
        while self._inbox:
            what, about = self._inbox.popleft()
            if what == "arrived":
                self._arrivals += about
            elif what == "run":
                self._take_run(about)
            elif what == "ended":
                self._take_end(about)
            elif what == "changed":
                self._changes[about[0]] = about[1]
            else:
                self._over.append((self._clock.now().mono + GRACE, about))

    def _take_run(self, delivery: Delivery) -> None:
        one = _One(delivery, _key_of(delivery))
        if one.place in self._suspected or (delivery.past.last_error or "").startswith(f"{CRASH.type}: "):
            if not self._suspects and self._alone is None:
                self._since = self._clock.now().mono
            self._suspects.append(one)
        else:
            self._again.append(one)

    def _take_end(self, delivery: Delivery) -> None:
        one = self._out.pop(delivery, None)
        if one is None:
            return
        if (batch := one.batch) is not None:
            batch.left -= 1
            if not batch.left:
                self._ended.append(batch.number)
            return
        self._suspected.discard(one.place)
        self._marks.pop(one.place, None)
        self._unmarked.add(one.place)
        if one is self._alone:
            self._alone, self._since = None, self._clock.now().mono

    # -- one transaction ----------------------------------------------------------------------------

    def _do(self) -> float:
        now = self._clock.now()
        beats = now.mono >= self._beat_at
        said = self._arrivals or self._changes or self._unmarked or self._ended or self._is_over(now.mono)
        if not (said or self._chosen([], now.mono) or beats):
            return self._rest(now.mono)
        with self._lines.writing() as connection:
            if beats:
                self._lines.beat(connection, now.us)
            turn = self._look_up(connection, now.mono)
            chosen = self._chosen([] if turn.suspects else turn.fresh, now.mono)
            mark = ALONE if chosen and chosen[0] in self._suspects and len(chosen) == 1 and not self._out else TOGETHER
            batches = self._batches(chosen)
            changes = self._to_write(chosen, mark, batches, now)
            self._lines.write(connection, changes)
        self._trouble("")
        if beats:
            self._beat_at = now.mono + BEAT
        self._changes.clear()
        self._unmarked.clear()
        self._ended.clear()
        while self._is_over(now.mono):
            self._over.popleft()
        self._arrivals = turn.undecided
        self._written += len(changes.lines) + len(batches)
        for batch in batches:
            for one in batch.members:
                one.batch = batch
        self._let_through(turn, chosen, mark, now.mono)
        if self._written >= PRUNE_EVERY:
            self._written = 0
            self._prune()
        return self._rest(self._clock.now().mono)

    def _is_over(self, now_mono: float) -> bool:
        return bool(self._over) and (self._closed or self._over[0][0] <= now_mono)

    def _look_up(self, connection: Any, now_mono: float) -> _Turn:
        """Tell the arrivals with a past from those without."""
        turn, asked = _Turn(), dict[Destination, list[_One]]()
        marks_returns = self._adapter.capabilities.marks_returns
        for delivery in self._arrivals:
            one = _One(delivery, _key_of(delivery))
            if one.key and (_is_marked(delivery) or not marks_returns):
                asked.setdefault(delivery.destination, []).append(one)
            elif one.key and not self._boss.awaits(delivery):
                turn.fresh.append(one)
            else:
                turn.known.append(one)
        for source, some in asked.items():
            found = self._lines.find(connection, str(source), sorted({one.key for one in some}))
            had = self._lines.in_batches(connection, str(source))
            runs = {line.run for line in found.values() if line.mark != NONE} | {*had.values()}
            dead = self._lines.dead(connection, runs, now_mono) if runs else {}
            for one in some:
                self._sort(turn, one, found.get(one.key), had.get(one.key, ""), dead)
        return turn

    def _sort(self, turn: _Turn, one: _One, line: Any, batch: str, dead: Mapping[str, bool | None]) -> None:
        """By its line, by the run that had it in a batch (empty: none had), and by who is dead."""
        if line is not None and line.run == self._lines.run:
            return turn.known.append(one)
        marked = line is not None and line.mark != NONE
        died = dead.get(line.run) if marked else False
        if marked and line.mark == ALONE and died is None:
            return turn.undecided.append(one.delivery)
        if died or dead.get(batch):
            turn.suspects.append(one)
        if line is not None:
            turn.entries.append((one, line, bool(died and line.mark == ALONE)))
        past = line is not None or died or dead.get(batch) or _is_marked(one.delivery)
        (turn.known if past or self._boss.awaits(one.delivery) else turn.fresh).append(one)

    def _chosen(self, fresh: list[_One], now_mono: float) -> list[_One]:
        """Who may go to a handler now: a suspect, or all who are none, or nobody."""
        if self._stopped:
            return []
        waited = now_mono - self._since
        suspect = next((one for one in self._suspects if self._boss.can_run(one.delivery.destination)), None)
        if self._alone is not None and waited < PATIENCE:
            return []
        if self._alone is None and suspect is not None and (not self._out or waited < PATIENCE):
            return [] if self._out else [suspect]
        others = [*self._again, *self._waiting, *fresh]
        return [suspect, *others] if suspect is not None else others

    def _batches(self, chosen: list[_One]) -> list[_Batch]:
        by_source: dict[Destination, list[_One]] = {}
        for one in chosen:
            if not one.delivery.known:
                by_source.setdefault(one.delivery.destination, []).append(one)
        return [_Batch(next(self._numbers), source, some, len(some)) for source, some in by_source.items()]

    def _to_write(self, chosen: list[_One], mark: int, batches: list[_Batch], now: Any) -> Changes:
        marks = self._marks | {one.place: mark for one in chosen if one.delivery.known and one.key}
        if chosen and self._alone is not None:  # it is not alone any more
            marks[self._alone.place] = TOGETHER
        changed = dict(self._changes)
        for one in [*chosen, self._alone]:
            if one is not None and one.place in marks and self._marks.get(one.place) != marks[one.place]:
                changed.setdefault(one.place, self._line_of(one))
        over = [place for at, place in self._over if at <= now.mono or self._closed]
        return Changes(
            lines=[
                EMPTY_LINE | line | {
                    "source": str(source), "message": key, "mark": marks.get((source, key), NONE),
                    "changed_us": now.us,
                }
                for (source, key), line in changed.items()
            ],
            unmarked=[(str(source), key) for source, key in self._unmarked if (source, key) not in changed],
            over=[(str(source), key) for source, key in over if (source, key) not in self._marks],
            begun=[(batch.number, str(batch.source), [one.key for one in batch.members]) for batch in batches],
            ended=self._ended,
            at_us=now.us,
        )  # fmt: skip

    def _line_of(self, one: _One) -> dict[str, Any]:
        past = counting.read_past(one.delivery)
        key = counting.message_key(one.delivery, past)
        entry = key and self._ledgers[one.delivery.destination].find(counting.ledger_key(key, past))
        return known.line_of(entry) if entry else EMPTY_LINE

    # -- after it -------------------------------------------------------------------------------------

    def _let_through(self, turn: _Turn, chosen: list[_One], mark: int, now_mono: float) -> None:
        going = set(chosen)
        self._again = deque(one for one in self._again if one not in going)
        self._waiting = deque(one for one in [*self._waiting, *turn.fresh] if one not in going)
        self._suspects = deque(one for one in self._suspects if one not in going)
        if chosen:
            if self._alone is not None:
                self._marks[self._alone.place] = TOGETHER
            self._alone = chosen[0] if mark == ALONE else None
            self._since = now_mono
            self._marks |= {one.place: mark for one in chosen if one.delivery.known and one.key}
        for one, line, culprit in turn.entries:
            self._prime(one, line, culprit)
        self._suspected |= {one.place for one in turn.suspects}
        if turn.known:
            self._boss.admit([one.delivery for one in turn.known])
        going_to: dict[tuple[Destination, bool], list[Delivery]] = {}
        for one in chosen:
            self._out[one.delivery] = one
            going_to.setdefault((one.delivery.destination, one.delivery.known), []).append(one.delivery)
        for (_, first), some in going_to.items():
            self._boss.hand(some, first=first)

    def _prime(self, one: _One, line: Any, culprit: bool) -> None:
        """Put what the database knows into the ledger, for the interceptor to find."""
        delivery, ledger = one.delivery, self._ledgers[one.delivery.destination]
        past = counting.read_past(delivery)
        lineage = counting.message_key(delivery, past)
        assert lineage is not None
        key = counting.ledger_key(lineage, past)
        there = ledger.find(key)
        if there is not None and there.story is not None:
            return
        entry = known.entry_of(line, lineage, past, counting.digest(delivery))
        entry.crashed = culprit
        ledger.forget(key)
        ledger.open(key, lambda: entry)
        if not (self._adapter.capabilities.marks_returns or entry.done):
            ledger.back.add(key)  # it is the one that was here before, if perhaps without a mark that says so

    def _rest(self, now_mono: float) -> float:
        rest = max(0.0, self._beat_at - now_mono)
        if self._over:
            rest = min(rest, max(0.0, self._over[0][0] - now_mono))
        in_the_way = self._alone is not None or self._suspects
        impatient = self._arrivals or (in_the_way and (self._again or self._waiting or self._suspects))
        return min(rest, LOOK) if impatient else rest

    def _prune(self) -> None:
        size = min(ledger.size for ledger in self._ledgers.values())
        try:
            self._lines.prune(map(str, self._ledgers), size, self._clock.now().us)
        except RedeliverError as error:
            self._trouble(str(error))

    def _trouble(self, what: str) -> None:
        """Said when it begins, and when it is over."""
        if what and not self._in_trouble:
            log.error("%s. No message is handed to a handler until that is over; nothing is lost", what)
            self._boss.in_trouble(what)
        elif self._in_trouble and not what:
            log.warning("%s: works again", self._lines.where)
            self._boss.in_trouble("")
        self._in_trouble = what


EMPTY_LINE: dict[str, Any] = {
    "failures": 0, "done": 0, "not_before_us": None, "first_failed_us": None, "last_failed_us": None,
    "last_error": None, "digest": None, "rest": None,
}  # fmt: skip


def _is_marked(delivery: Delivery) -> bool:
    return delivery.redelivered or delivery.reader.marked(delivery.native)


def _key_of(delivery: Delivery) -> str:
    """Of its line; empty for a message without any id."""
    past = counting.read_past(delivery) if delivery.reader.marked(delivery.native) else NO_PAST
    key = counting.message_key(delivery, past)
    return "" if key is None else known.key_of_line(counting.ledger_key(key, past))
