# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Collects dead letters: moves them from their queues into the store.

A batch of letters is committed in the store before it is settled, and the next one is read meanwhile. After the death
of the process at any moment a letter is in its queue, in the store, or in both; when it comes again, it is recognised.
See `recognition`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Dialect, Table, delete, insert, select, update

from ..adapter.protocol import Adapter
from ..adapter.registry import adapter_for, parse_url
from ..dead_letters import BrokerClient, QueueDrain, ReadLetters
from ..errors import ConfigError, NotCopyable, RedeliverError, StoreError
from ..message import Delivery, Destination
from .audit import audit_refusals, end_run, fail_dead_runs
from .became import mark_failed_again
from .letters import Row, Shelf, StoreRows, rows_of
from .operation import (
    Operation,
    OperationState,
    begin_operation,
    check_run,
    count_done,
    expect_letters,
    find_operation,
    go_on,
    now_us,
    plan_without_letters,
    take_operation,
)
from .recognition import forget_doubts, recognise, remove_whole
from .runs import check_kind
from .store import Store
from .tables import batches, bodies, counters, headers, letters, own_headers

KIND = "collect"
BATCH = 2000  # letters that are unsettled at once: half of them are written while the others come and are read
ENDLESS = 2**62  # letters, which no queue holds
LOOK = 1.0  # seconds between two looks at the state of the operation
AT_ONCE = 1000  # rows that SQLite gets in one statement; each number of rows would be a statement to keep in memory
MOST_VALUES = 32_766  # that SQLite takes with one statement, unless it was built to take more
Progress = Callable[[str, int, int | None], None]
"""Is given a queue, the letters that were stored, and how many there were at the start (None: no end).

Called on another thread than `collect`; of one queue never twice at a time.
"""


@dataclass(frozen=True, slots=True)
class CollectedQueue:
    """Sums up what was collected from one queue.

    `found` letters were there at the start (None: not asked). `collected` are new in the store, `again` were in it
    already. `stay` cannot be kept outside of their queue; `reasons` counts why. `rest`: why the collect ended early.
    """

    queue: str
    found: int | None
    collected: int = 0
    again: int = 0
    stay: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Collected:
    """Sums up a collect. `stopped`: it was asked to stop before its end."""

    operation: str
    queues: Sequence[CollectedQueue]
    stopped: bool

    @property
    def whole(self) -> bool:
        """Return whether every letter that was asked for is in the store."""
        return not self.stopped and not any(queue.stay or queue.rest for queue in self.queues)


def queues_of(url: str, names: Sequence[str]) -> list[Destination]:
    """Return the queues to collect from. Raises ConfigError for errors that can be found before connecting."""
    _check_broker(url)
    return queues_named(names)


def queues_named(names: Sequence[str]) -> list[Destination]:
    """Return the queues of these names, each once. Raises ConfigError for what is no queue."""
    queues = list(dict.fromkeys(map(Destination.parse, names)))
    for queue in queues:
        if queue.kind == "topic" and not queue.subscription:
            raise ConfigError(
                f"{queue} is no queue",
                cure="Name the queue, or topic:NAME::SUBSCRIPTION, of the letters",
                code="destination-kind",
            )
    return queues


def plan_collect(
    store: Store,
    names: Sequence[str],
    *,
    limit: int | None = None,
    follow: bool = False,
    broker: str = "",
    who: str = "",
) -> Operation:
    """Record a collect that `run_collect` is to run, and return the operation. Nothing is connected.

    `broker`: the name by which whoever runs it knows the broker. Raises ConfigError, StoreError.
    """
    queues = queues_named(names)
    check_limit(limit, follow=follow)
    options = _options(queues, limit, follow) | {"broker": broker}
    fail_dead_runs(store, KIND)
    return plan_without_letters(store, KIND, filter_=" ".join(options["queues"]), options=options, who=who)


def run_collect(
    store: Store,
    operation_id: str,
    url: str,
    *,
    batch: int = BATCH,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Collected:
    """Run a collect that was planned, or go on with one that was paused or whose process is gone.

    `stop`, when set, pauses it after the batch in hand. Of a limit, what earlier runs have collected counts. Raises
    ConfigError, BrokerError or StoreError as `collect` does; then the operation is `failed`, and can be run again.
    """
    found = find_operation(store, operation_id)
    with audit_refusals(store, who=who, what=KIND, filter_=found.filter, operation_id=found.operation_id):
        check_kind(found, KIND)
        _check_broker(url)
        queues = queues_named(found.options.get("queues") or [])
        operation = take_operation(store, found.operation_id)
    one = Collect(lambda: adapter_for(url), queues, store, batch=batch, stop=stop, progress=progress)
    return one.run_taken(operation, who=who)


def check_limit(limit: int | None, *, follow: bool) -> None:
    """Raise ConfigError for a limit that is no number from 1 on, or that a collect without an end has."""
    if limit is not None and (limit < 1 or follow):
        what = "a limit for a collect that has no end" if follow else f"{limit} is no number from 1 on"
        raise ConfigError(what, where="limit", cure="Leave it out for all", code="option-value")


def _options(queues: Sequence[Destination], limit: int | None, follow: bool) -> dict[str, Any]:
    return {"queues": [queue.short for queue in queues], "limit": limit, "follow": follow}


def _check_broker(url: str) -> None:
    if parse_url(url).dialect == "memory":
        raise ConfigError(
            "a memory broker lives in one process, and this is another",
            where="memory://",
            cure="Collect from a real one; in tests read TestApp.dead_letters(source)",
            code="memory-broker-elsewhere",
        )


def collect(
    url: str,
    names: Sequence[str],
    store: Store,
    *,
    limit: int | None = None,
    follow: bool = False,
    batch: int = BATCH,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    who: str = "",
) -> Collected:
    """Move the letters that the queues hold now into the store, at most `limit`; with `follow`, until `stop` is set.

    Raises ConfigError, BrokerError or StoreError. Then letters that were stored are settled, as far as the broker could
    be reached, and all others are in their queue.
    """
    queues = queues_of(url, names)
    check_limit(limit, follow=follow)
    one = Collect(lambda: adapter_for(url), queues, store, batch=batch, stop=stop, progress=progress)
    return one.run(limit=limit, follow=follow, who=who)


class Collect:
    """Runs one collect. `adapters` makes a new adapter, not yet started, for each connection."""

    def __init__(
        self,
        adapters: Callable[[], Adapter],
        queues: Sequence[Destination],
        store: Store,
        *,
        batch: int = BATCH,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._adapters, self._queues, self._store, self._batch = adapters, queues, store, batch
        self._stop = stop or threading.Event()
        self._halt = threading.Event()  # another queue has failed, or somebody has paused or cancelled the operation
        self._progress = progress
        self._operation: Operation | None = None
        self._asked = False  # somebody has paused or cancelled it
        self._next_look = 0.0

    def run(self, *, limit: int | None = None, follow: bool = False, who: str = "") -> Collected:
        """Collect as `collect` does. A stop cancels what has an end, and is the end of what has none."""
        found = self._found()
        options = _options(self._queues, limit, follow)
        fail_dead_runs(self._store, KIND)
        operation_id = begin_operation(
            self._store, KIND, filter_=" ".join(options["queues"]), options=options, total=0, who=who
        )
        operation = find_operation(self._store, operation_id)
        return self._run(operation, found, who, "done" if follow else "cancelled")

    def run_taken(self, operation: Operation, *, who: str = "") -> Collected:
        """Run an operation that this process has taken, as `run_collect` does. A stop pauses it."""
        return self._run(operation, None, who, "paused")

    def _run(
        self, operation: Operation, found: Sequence[int] | None, who: str, when_stopped: OperationState
    ) -> Collected:
        self._operation, operation_id = operation, operation.operation_id
        limit, follow = operation.options.get("limit"), bool(operation.options.get("follow"))
        left = ENDLESS if limit is None else max(0, limit - operation.done)
        try:
            found = self._found() if found is None else found
            if not follow:
                expect_letters(self._store, operation, operation.done + min(sum(found), left))
            done = self._follow(operation_id) if follow else self._once(operation_id, found, left)
        except BaseException as error:
            with suppress(StoreError):
                end_run(self._store, operation, "failed", str(error) or type(error).__name__, who=who)
            raise
        collected = Collected(operation_id, done, self._stop.is_set() or self._asked)
        why = next((queue.rest for queue in done if queue.rest), "")
        state: OperationState = when_stopped if self._stop.is_set() else "done"
        end_run(self._store, operation, state, why, who=who, failed=sum(queue.stay for queue in done))
        return collected

    def _found(self) -> list[int]:
        """Return how many letters each queue holds. Raises DestinationMissing before any letter is taken."""
        with BrokerClient(self._adapters()) as asking:
            return [asking.depth(queue) for queue in self._queues]

    def _once(self, operation: str, found: Sequence[int], left: int) -> list[CollectedQueue]:
        done = []
        for queue, there in zip(self._queues, found, strict=True):
            quota = min(there, left)
            if quota < 1 or self._is_stopped():
                done.append(CollectedQueue(queue.short, there))
                continue
            taken = self._share(operation, queue, quota, there, waits=False)
            left -= taken.collected + taken.again + taken.stay
            done.append(taken)
        self._forget_doubts(operation)
        return done

    def _follow(self, operation: str) -> list[CollectedQueue]:
        done: dict[int, CollectedQueue] = {}
        failures: list[BaseException] = []

        def work(number: int, queue: Destination) -> None:
            try:
                done[number] = self._share(operation, queue, ENDLESS, None, waits=True)
            except BaseException as error:
                failures.append(error)
                self._halt.set()

        threads = [
            threading.Thread(target=work, args=place, name=f"redeliver-collect-{place[0]}")
            for place in enumerate(self._queues)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.5)  # a signal is heard in between
        finally:
            self._halt.set()  # at the second Ctrl-C
        if failures:
            raise failures[0]
        return [done[number] for number in sorted(done)]

    def _share(
        self, operation: str, queue: Destination, quota: int, found: int | None, *, waits: bool
    ) -> CollectedQueue:
        adapter = self._adapters()
        tell = self._progress_of(queue, found)
        shelf = ShelfInStore(self._store, operation, queue, adapter, tell, check=self._check_run)
        drain = QueueDrain(
            adapter,
            queue,
            shelf,
            quota=quota,
            batch=self._batch,
            early=max(1, self._batch // 2),
            stopped=self._is_stopped,
            waits=waits,
        )
        taken = drain.run()
        shelf.finish()
        rest = "" if self._stop.is_set() or self._asked else taken.rest
        return CollectedQueue(queue.short, found, shelf.collected, shelf.again, taken.stay, dict(shelf.reasons), rest)

    def _is_stopped(self) -> bool:
        """Return whether the collect is to end. Every now and then the state of the operation is looked at."""
        if self._stop.is_set() or self._halt.is_set():
            return True
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK
            with suppress(StoreError):  # a store that is away ends the collect when there is something to store
                if self._operation is not None and not go_on(self._store, self._operation):
                    self._asked = True
                    self._halt.set()
        return self._asked

    def _check_run(self, connection: Connection) -> None:
        if self._operation is not None:
            check_run(connection, self._operation)

    def _progress_of(self, queue: Destination, found: int | None) -> Callable[[int], None]:
        tell = self._progress
        return (lambda taken: None) if tell is None else lambda taken: tell(queue.short, taken, found)

    def _forget_doubts(self, operation: str) -> None:
        with suppress(RedeliverError), BrokerClient(self._adapters()) as asking:
            empty = [queue.short for queue in self._queues if asking.depth(queue) == 0]
            with self._store.writing() as connection:
                forget_doubts(connection, asking.broker, empty, operation)


class _BatchToStore(NamedTuple):
    """Holds what one transaction stores, and which batches it forgets because they are `sure`."""

    shelf: Shelf
    rows: Sequence[StoreRows]
    origin: str
    batch_id: str
    at_us: int
    sure: Sequence[str]


class ShelfInStore:
    """Stores the letters of one drain: each batch in one transaction, which is durable before it is settled."""

    def __init__(
        self,
        store: Store,
        operation: str,
        queue: Destination,
        adapter: Adapter,
        progress: Callable[[int], None] = lambda taken: None,
        check: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._store, self._operation, self._queue, self._adapter = store, operation, queue, adapter
        self._progress, self._check = progress, check
        self._run = secrets.token_hex(8)
        self._number, self._generation = 0, 0
        self._unsure: deque[str] = deque()
        self._sure: list[str] = []  # removed with the next batch that is read, which saves a transaction
        self.collected, self.again = 0, 0
        self.reasons: Counter[str] = Counter()

    def read(self, generation: int, deliveries: Sequence[Delivery], /) -> ReadLetters:
        """Return the letters that can be stored. Their write raises StoreError; then none of them was stored."""
        shelf = Shelf(self._adapter.broker, self._queue, self._adapter.capabilities)
        rows, kept = [], []
        at_us = now_us()
        if generation != self._generation:  # letters that stay come again
            self._generation = generation
            self.reasons.clear()
        for delivery in deliveries:
            try:
                rows.append(rows_of(delivery, shelf, at_us))
            except NotCopyable as error:
                self.reasons[error.what] += 1
            else:
                kept.append(delivery)
        sure = self._sure
        if rows:
            self._sure = []
        batch_id = f"{at_us:016d}-{self._run}-{self._number}"
        self._number += 1
        batch = _BatchToStore(shelf, rows, f"{self._run}-{generation}", batch_id, at_us, sure)
        return ReadLetters(kept, partial(self._write, batch))

    def sure(self, number: int, /) -> None:
        """Note that the letters of so many batches are off their queue."""
        self._sure += [self._unsure.popleft() for _ in range(number)]

    def lost(self) -> None:
        """Leave the batches that are not sure in doubt: they may come back."""
        self._unsure.clear()

    def finish(self) -> None:
        """Write what is known of the last batches. Raises StoreError."""
        if self._sure:
            with self._store.writing() as connection:
                _forget(connection, self._sure)
            self._sure = []

    def _write(self, batch: _BatchToStore) -> None:
        with self._store.writing() as connection:
            self._check(connection)  # raises if another process has taken the operation over
            again = self._insert(connection, batch)
            count_done(connection, self._operation, len(batch.rows) - again)
        self._unsure.append(batch.batch_id)
        self.collected += len(batch.rows) - again
        self.again += again
        self._progress(self.collected + self.again)

    def _insert(self, connection: Connection, batch: _BatchToStore) -> int:
        """Insert the rows of a batch, and return how many of its letters the store has already."""
        first = _take_numbers(connection, len(batch.rows))
        _forget(connection, batch.sure)
        found = recognise(connection, batch.rows, batch.origin, batch.batch_id)
        for number, one in enumerate(found.new, start=first):
            one.numbered(number)
        if found.new:
            _insert(connection, letters, [one.letter for one in found.new])
            _insert(connection, bodies, [one.body for one in found.new])
            _insert(connection, own_headers, [row for one in found.new for row in one.own])
            _insert(connection, headers, [row for one in found.new for row in one.foreign])
            mark_failed_again(connection, (one.letter for one in found.new))
        if any(one.letter["known_by"] != "copy" for one in batch.rows):
            line = {"batch_id": batch.batch_id, "operation_id": self._operation, "origin": batch.origin}
            where = {"broker": batch.shelf.broker, "queue": batch.shelf.queue.short}
            connection.execute(insert(batches).values(stored_us=batch.at_us, **line, **where))
        return found.again + remove_whole(connection, found.new)


def _forget(connection: Connection, batch_ids: Sequence[str]) -> None:
    if batch_ids:
        connection.execute(delete(batches).where(batches.c.batch_id.in_(batch_ids)))


def _insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows that have a value for each column.

    SQLAlchemy only writes the statement: it would look at each value of each row, which takes longer than the database.
    SQLite gets as many rows as possible with one statement: Python's lock is free while a statement runs, and in
    between the adapter's thread could keep it for some milliseconds each time.
    """
    if not rows:
        return
    statement, many, places = _insertion(table, connection.dialect)
    if not places:  # the driver takes values by name
        connection.exec_driver_sql(statement, rows)
        return
    values = list(map(itemgetter(*places), rows))
    at_once = _at_once(places)
    whole = len(values) - len(values) % at_once
    for at in range(0, whole, at_once):
        connection.exec_driver_sql(many, tuple(chain.from_iterable(values[at : at + at_once])))
    if whole < len(values):
        connection.exec_driver_sql(statement, values[whole:])


@lru_cache(maxsize=32)
def _insertion(table: Table, dialect: Dialect) -> tuple[str, str, Sequence[str]]:
    """Return what inserts one row and what inserts many, and the columns in order. Cached for the next batch."""
    compiled = insert(table).compile(dialect=dialect)
    statement, places = str(compiled), compiled.positiontup or []
    if not places:
        return statement, "", places
    return statement, statement + f", ({', '.join('?' * len(places))})" * (_at_once(places) - 1), places


def _at_once(places: Sequence[str]) -> int:
    return min(AT_ONCE, MOST_VALUES // len(places))


def _take_numbers(connection: Connection, number: int) -> int:
    """Take so many numbers of letters, and return the first. Until the commit nobody else stores letters."""
    connection.execute(update(counters).values(next_letter_id=counters.c.next_letter_id + number))
    taken: int = connection.execute(select(counters.c.next_letter_id)).scalar_one()
    return taken - number
