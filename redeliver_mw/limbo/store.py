# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Stores parked messages in a database and returns those that are due, each to one program at a time."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from ..clock import Clock, SystemClock
from ..errors import EVENT_CODE, ConfigError
from ..message import Destination
from ..redaction import clean, redact
from ..redelivery.order_places import FoundPlace
from ..storage.database import Database
from ..storage.table_set import alone
from . import leases
from .places import forget, places_of, write_places
from .queries import count_failure, due_ids, fenced, found_of, known_copies, parked_of, remove, waiting
from .rows import MOST_COUNTED, Parked, ParkedRow, Parking, insertions, lines_of

log = logging.getLogger("redeliver_mw.limbo")

RETRY = 84  # publishes: with the delays below, three days until a message that its target always refuses is given up
UNREADABLE_RETRY = 5  # times that a message is looked at that somebody has changed so that it cannot be read
LEASE = 15.0
HANDED_OUT_BYTES = 16 * 2**20  # of bodies, in one batch
ERROR_CHARS = 2000
# Maximum delay in seconds between two publishes to a target that refuses; the first is one second.
LONGEST_REST = 3600.0


class Limbo:
    """Stores the parked messages of one app on one broker, in the database at `url`.

    `sqlite:///file.db`, or `postgresql://…` if several hosts share the database. `app` and `broker` identify the owner
    of the messages: only a program with the same two takes them over, once their holder has been silent for `lease`
    seconds. A message is published while its `delivery_count` is at most `retry` (1 .. 98).

    Thread-safe: one method runs at a time. Each method waits for the disk or the server, so none should be called on a
    connection's own thread; `LimboWorker` is the thread that calls them for an app. Each method makes all its changes
    in one transaction; if that fails, it changes nothing and raises LimboError. A parked message is on the disk when
    `park` has returned.

    `keep()` has to be called every third of `lease`; it writes the heartbeat without which other programs take the
    messages over.
    """

    def __init__(
        self,
        url: str,
        *,
        app: str,
        broker: str = "",
        host: str | None = None,
        retry: int = RETRY,
        lease: float = LEASE,
        busy_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        if not 1 <= retry < MOST_COUNTED:
            raise ConfigError(f"limbo_delivery_retry={retry} is not from 1 to {MOST_COUNTED - 1}", code="option-value")
        if not lease > 0:
            raise ConfigError(f"a lease of {lease} seconds", code="option-value")
        self._db = Database(url, busy_timeout=busy_timeout)
        self._clock = clock or SystemClock()
        self._retry = retry
        host = clean(host or socket.gethostname())
        name = f"{host} {os.getpid()}"
        self._who = leases.LeaseOwner(clean(app), clean(broker), name, f"{clean(app)}@{host}", lease, retry)
        self._watch = leases.LeaseWatch()
        self._own = 0  # the part in which this program parks
        self._held: dict[int, int] = {}  # part -> token
        self._out: dict[int, int] = {}  # message that is handed out -> its part
        self._alive = 0.0  # monotonic: until then no other program can have taken our parts
        self._refusing: dict[Destination, bool] = {}  # targets that refuse now; True once a give-up was logged

    @property
    def where(self) -> str:
        """Return the database's URL, without secrets."""
        return self._db.where

    @property
    def lease(self) -> float:
        """Return the lease in seconds."""
        return self._who.lease

    @property
    def handed_out(self) -> int:
        """Return the number of messages that `due` handed out and that have no outcome yet."""
        return len(self._out)

    # -- opening and closing -----------------------------------------------------------------------

    def open(self) -> Self:
        """Connect, create missing tables, take a part and those of dead programs. Raises ConfigError or LimboError."""
        self._db.open()
        try:
            with self._db.lock:
                self._claim()
                self.keep()
        except BaseException:
            self._db.close()
            raise
        return self

    def close(self) -> None:
        """Give the parts back, so that the next program need not wait for the lease, and disconnect."""
        with self._db.lock:
            if not self._held:
                return self._db.close()
            try:
                with self._db.writing() as connection:
                    leases.give_back(connection, self._held)
            except Exception as error:  # then the next program waits for the lease
                log.warning("%s", error, extra={EVENT_CODE: "limbo-not-given-back"})
            self._held, self._out = {}, {}
            self._db.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _claim(self) -> None:
        now = self._clock.now()
        with self._db.writing() as connection:
            alone(connection)
            limbo_id, token = leases.claim_own(connection, self._who, now)
        self._own = limbo_id
        self._held[limbo_id] = token
        self._alive = now.mono + self._who.lease

    def keep(self) -> None:
        """Write the heartbeat, and take over the parts of dead programs. To be called every `lease` / 3 seconds."""
        with self._db.lock:
            now = self._clock.now()
            if now.mono > self._alive:  # a program that could not look cannot know that others were silent
                self._watch = leases.LeaseWatch()
            with self._db.writing() as connection:
                kept = leases.beat(connection, self._held, now)
                empty = {
                    id_: token for id_, token in kept.items() if id_ != self._own and leases.is_empty(connection, id_)
                }
                leases.give_back(connection, empty)
                taken = leases.take_over(connection, self._who, kept, self._watch, now)
            lost = self._held.keys() - kept.keys()
            self._held = {id_: token for id_, token in kept.items() if id_ not in empty} | taken
            self._out = {id_: part for id_, part in self._out.items() if part in self._held}
            self._alive = now.mono + self._who.lease
        if lost:
            log.warning(
                "%s: silent for longer than its lease of %g s, this program lost its parked messages to another one",
                self.where,
                self._who.lease,
            )
        if self._own not in self._held:
            self._claim()

    # -- parking -----------------------------------------------------------------------------------

    def park(self, batch: Sequence[Parking]) -> list[int]:
        """Store these messages and return their ids. All of them are on the disk when this returns.

        A copy that is parked already (its answer was lost) is not parked again. Raises NotCopyable, with nothing
        written, if a message would not come back unchanged.
        """
        now_us = self._clock.now().us
        return self.park_lines([(lines_of(parking, now_us), parking.out.copy_id) for parking in batch])

    def park_lines(self, batch: Sequence[tuple[ParkedRow, str]]) -> list[int]:
        """Store messages whose rows were made before, each with its copy id, in the same way."""
        with self._db.lock:
            ids = self._parked(batch)
            if ids is None:  # another program has our part, and publishes the messages in it
                self._claim()
                ids = self._parked(batch)
            assert ids is not None
            return ids

    def _parked(self, batch: Sequence[tuple[ParkedRow, str]]) -> list[int] | None:
        own, token = self._own, self._held.get(self._own, 0)
        with self._db.writing() as connection:
            copy_ids = [copy_id for _, copy_id in batch if copy_id]
            there = known_copies(connection, copy_ids, self._who.app, self._who.broker)
            fresh = {copy_id or n: lines for n, (lines, copy_id) in enumerate(batch) if copy_id not in there}
            first = leases.reserve(connection, own, token, len(fresh))
            if first is None:
                return None
            numbered = list(enumerate(fresh.values(), first))
            common = {"limbo_id": own, "msg_src_name": self._who.app}
            for table, rows in insertions(numbered, common):
                connection.execute(table.insert(), rows)
            noted = [place for lines, _ in batch for place in lines.places]
            write_places(connection, self._who.app, self._who.broker, noted)
        known = there | dict(zip(fresh, range(first, first + len(fresh)), strict=True))
        return [known[copy_id or n] for n, (_, copy_id) in enumerate(batch)]

    # -- places in the order by key -----------------------------------------------------------------

    def places(self, source: Destination) -> list[FoundPlace]:
        """Return the places that were stored with parked messages of this source, in the order of their numbers."""
        with self._db.lock, self._db.reading() as connection:
            return places_of(connection, self._who.app, self._who.broker, str(source))

    def forget_places(self, gone: Sequence[tuple[Destination, tuple[str, int]]]) -> None:
        """Remove places, each given by its source, its key and its number."""
        with self._db.lock, self._db.writing() as connection:
            for source, place in gone:
                forget(connection, self._who.app, self._who.broker, str(source), [place])

    # -- publishing --------------------------------------------------------------------------------

    def due(self, now: float | None = None, limit: int = 500) -> list[Parked]:
        """Return messages that are due at `now` (seconds since 1970; default: the clock's), the longest due first.

        At most `limit` messages, and 16 MiB of bodies or one message. All of them are ours by their tokens when this
        returns. Each message is handed out once, until its outcome is reported by `done`, `failed` or `back`. A message
        that somebody has changed so that it cannot be read counts as failed, and is not in the answer.
        """
        with self._db.lock:
            if self._clock.now().mono >= self._alive:
                self.keep()
            now_ms = int((self._clock.now().wall if now is None else now) * 1000)
            with self._db.reading() as connection:
                ours = leases.still_held(connection, self._held)
                ids = self._chosen(connection, ours, now_ms, limit)
                lines = [one for one in found_of(connection, ids) if one.message["limbo_id"] in ours]
            found = [parked_of(one, self._held[one.message["limbo_id"]]) for one in lines]
            good = [row for row in found if not row.problem]
            self._out |= {row.id: row.limbo_id for row in found}
            for row in found:
                if row.problem:
                    self._unreadable(row)
            return good

    def _chosen(self, connection: Connection, held: Iterable[int], now_ms: int, limit: int) -> list[int]:
        found: list[tuple[int, int, int]] = []
        for limbo_id in held:
            found += due_ids(connection, limbo_id, now_ms, self._retry, limit + len(self._out))
        chosen: list[int] = []
        size = 0
        for _, id_, body_bytes in sorted(found):
            if id_ in self._out:
                continue
            size += body_bytes
            if len(chosen) == limit or (chosen and size > HANDED_OUT_BYTES):
                break
            chosen.append(id_)
        return chosen

    def next_due(self) -> float | None:
        """Return when the next of our messages not handed out is due, in seconds since 1970; None if there is none.

        The time may be past. Cheap: call it every two seconds or so to see changes by an operator or another program.
        """
        with self._db.lock, self._db.reading() as connection:
            dates = []
            for limbo_id in self._held:
                rows = due_ids(connection, limbo_id, 2**63 - 1, self._retry, 1 + len(self._out))
                dates += [date for date, id_, _ in rows if id_ not in self._out][:1]
            return min(dates) / 1000 if dates else None

    def waiting(self) -> tuple[int, float | None]:
        """Return how many of our messages wait, including those handed out, and when the first of them is due.

        The time is in seconds since 1970, and None if there is no message. Messages that were given up do not count.
        """
        with self._db.lock, self._db.reading() as connection:
            number, first = waiting(connection, list(self._held), self._retry)
            return number, None if first is None else first / 1000

    def still_mine(self, rows: Sequence[Parked]) -> list[Parked]:
        """Return those of `rows` whose token is still valid. Called right before a publish that had to wait."""
        with self._db.lock:
            tokens = {row.limbo_id: row.token for row in rows}
            with self._db.reading() as connection:
                good = leases.still_held(connection, tokens) if tokens else set()
            return [row for row in rows if row.limbo_id in good and self._held.get(row.limbo_id) == row.token]

    def done(self, rows: Sequence[Parked]) -> list[Parked]:
        """Remove published and confirmed messages whose token is still valid. Return those removed."""
        with self._db.lock:
            with self._db.writing() as connection:
                mine = fenced(connection, rows)
                remove(connection, [row.id for row in mine])
            self._forget(rows)
            taken = {row.out.target for row in mine} & self._refusing.keys()
            for target in taken:
                del self._refusing[target]
        for target in taken:
            log.warning("%s: %s takes messages again", self.where, target)
        return mine

    def failed(self, rows: Sequence[Parked], why: str, *, again: float | None = None) -> list[Parked]:
        """Count a failed publish of these messages. Return those that are now given up, which stay until somebody acts.

        The others are due at `again`, in seconds since 1970; by default after a delay that starts at one second and
        doubles.
        """
        reason = clean(redact(why))[:ERROR_CHARS]
        mine, given_up = self._count(rows, reason, again, self._retry)
        self._say_refused(mine, given_up, reason)
        return given_up

    def _count(
        self, rows: Sequence[Parked], reason: str, again: float | None, most: int
    ) -> tuple[list[Parked], list[Parked]]:
        """Count a failure of each message. Return the messages that are ours, and those of them that are given up."""
        with self._db.lock:
            now = self._clock.now().wall
            with self._db.writing() as connection:
                mine = fenced(connection, rows)
                given_up = [row for row in mine if row.count >= most]
                for row in mine:
                    due = now + min(2.0 ** (row.count - 1), LONGEST_REST) if again is None else again
                    unreadable = row.count >= most and most < self._retry
                    count_failure(connection, row.id, due, reason, self._retry, give_up=unreadable)
            self._forget(rows)
        return mine, given_up

    def _unreadable(self, row: Parked) -> None:
        reason = clean(redact(row.problem))[:ERROR_CHARS]
        _, given_up = self._count([row], reason, None, min(self._retry, UNREADABLE_RETRY))
        if given_up:
            log.error("%s: message %d cannot be read, and stays: %s", self.where, row.id, reason)

    def _say_refused(self, rows: Sequence[Parked], given_up: Sequence[Parked], why: str) -> None:
        """Log when a target begins to refuse, and when its messages are given up: each once, until it accepts some."""
        for target in {row.out.target for row in rows} - self._refusing.keys():
            self._refusing[target] = False
            log.warning(
                "%s: %s refuses what was parked for it, which is tried again, ever more slowly: %s",
                self.where,
                target,
                why,
            )
        for target in {row.out.target for row in given_up}:
            if not self._refusing[target]:
                self._refusing[target] = True
                several = sum(row.out.target == target for row in given_up)
                log.error(
                    "%s: %s for %s given up after %d publishes, and any more will be: %s. Mend the target, and then "
                    "run `redeliver limbo release`",
                    self.where,
                    "1 message" if several == 1 else f"{several} messages",
                    target,
                    self._retry,
                    why,
                )

    def back(self, rows: Sequence[Parked]) -> None:
        """Take back messages not published for outside reasons: nothing is counted, and they are due as before."""
        with self._db.lock:
            self._forget(rows)

    def _forget(self, rows: Sequence[Parked]) -> None:
        for row in rows:
            self._out.pop(row.id, None)
