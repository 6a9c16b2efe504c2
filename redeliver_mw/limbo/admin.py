# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a limbo's messages to a person, and makes them due by hand, while programs work in the limbo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select, update

from ..clock import Clock, SystemClock
from ..errors import LimboError
from ..storage.database import Database
from ..storage.schema import messages, owners, parked
from .leases import FREE
from .queries import chunks, found_of, parked_of
from .rows import Parked
from .store import RETRY

_ALL = messages.outerjoin(parked, parked.c.msg_id == messages.c.msg_id).outerjoin(
    owners, owners.c.limbo_id == messages.c.limbo_id
)
GIVEN_UP = "given up"
DEAD_LETTER = "dead letter"
_UNSEEN = {"msg_id", "marks", "exact", "wire"}  # columns that are only needed for a whole message


@dataclass(frozen=True, slots=True)
class ParkedSummary:
    """Describes one message, without its body. Times are seconds since 1970.

    `state`: `waiting`, `due`, `given up` or `dead letter`, which is a message that could not be copied.
    """

    id: int
    to: str
    source: str
    state: str
    due: float
    parked: float | None
    count: int
    publishes: int
    failures: int
    generation: int
    reason: str
    lineage: str
    copy_id: str
    last_error: str
    body_bytes: int
    app: str
    holder: str
    asleep: bool  # the holder of its part has sent no heartbeat within the lease


@dataclass(frozen=True, slots=True)
class StayingMessage:
    """Holds a message that the limbo does not publish by itself any more.

    `state` is `given up` or `dead letter`; `broker` is empty if its part of the limbo has no owner.
    """

    state: str
    broker: str
    message: Parked


class LimboAdmin:
    """Shows and releases a limbo's messages for an operator.

    Takes part in no lease. Raises ConfigError or LimboError.
    """

    def __init__(self, url: str, *, busy_timeout: float = 5.0, clock: Clock | None = None) -> None:
        self._db = Database(url, busy_timeout=busy_timeout)
        self._clock = clock or SystemClock()

    @property
    def where(self) -> str:
        return self._db.where

    @property
    def place(self) -> str:
        """Return a URL that stays the same: a file's with its whole path, a server's without password or driver."""
        return self._db.place

    def __enter__(self) -> Self:
        self._db.open(create=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def counts(self) -> dict[str, int]:
        """Return the number of messages in each state."""
        state = self._state()
        with self._db.reading() as connection:
            query = select(state, func.count()).select_from(_ALL).group_by(state)
            counted = {row.state: row[1] for row in connection.execute(query)}
        return {name: counted.get(name, 0) for name in ("waiting", "due", GIVEN_UP, DEAD_LETTER)}

    def listed(self, limit: int | None = None, id_: str | None = None) -> list[ParkedSummary]:
        """Return messages by delivery date; with an id, those with this row, copy or lineage id.

        Raises LimboError if no message has the id.
        """
        with self._db.reading() as connection:
            found = [_listed(row) for row in connection.execute(_chosen(self._columns(), limit, id_)).mappings()]
        self._check(found, id_)
        return found

    def show(self, limit: int | None = None, id_: str | None = None) -> list[Parked]:
        """Return whole messages, to be looked at. Raises LimboError as for `listed`."""
        with self._db.reading() as connection:
            ids = list(connection.execute(_chosen(select(messages.c.msg_id), limit, id_)).scalars())
            found = [parked_of(one, 0, strict=False) for one in found_of(connection, ids)]
        self._check(found, id_)
        return found

    def staying(self) -> tuple[int, Iterator[list[StayingMessage]]]:
        """Return how many messages wait to be published, and an iterator over those that stay, a few at a time.

        Only rows that are there in one moment are found; one that has left the limbo meanwhile is left out.
        """
        state = self._state()
        chosen = select(messages.c.msg_id, state, owners.c.broker).select_from(_ALL)
        with self._db.reading() as connection:
            rows = connection.execute(chosen.where(state.in_((GIVEN_UP, DEAD_LETTER))).order_by(messages.c.msg_id))
            known = {row.msg_id: (row.state, row.broker or "") for row in rows}
            waiting = connection.execute(
                select(func.count()).select_from(_ALL).where(~state.in_((GIVEN_UP, DEAD_LETTER)))
            )
            return waiting.scalar_one(), self._whole(known)

    def _whole(self, known: dict[int, tuple[str, str]]) -> Iterator[list[StayingMessage]]:
        for ids in chunks(list(known)):
            with self._db.reading() as connection:
                found = [parked_of(one, 0, strict=False) for one in found_of(connection, ids)]
            yield [StayingMessage(*known[one.id], one) for one in found]

    def release(self, limit: int | None = None, id_: str | None = None) -> int:
        """Make messages due now and reset their publish counts. Return their number. Raises LimboError as for `listed`.

        A dead letter goes back to its source, so its handler runs again: it is released by its id only.
        """
        now_ms, m = int(self._clock.now().wall * 1000), messages.c
        sooner = case((m.delivery_date > now_ms, now_ms), else_=m.delivery_date)
        change = update(messages).values(delivery_count=1, delivery_date=sooner)
        with self._db.writing() as connection:
            if id_ is None:
                meant = select(m.msg_id).select_from(_ALL).where(self._state() != DEAD_LETTER)
            else:
                meant = select(m.msg_id)
            ids = list(connection.execute(_chosen(meant, limit, id_)).scalars())
            for some in chunks(ids):
                connection.execute(change.where(m.msg_id.in_(some)))
        self._check(ids, id_)
        return len(ids)

    def _check(self, found: Sequence[object], id_: str | None) -> None:
        if id_ is not None and not found:
            cure = "Look for it with `redeliver limbo list`: it may have gone out"
            raise LimboError(f"no such message: {id_!r}", where=self.where, cure=cure, code="limbo-row-not-found")

    def _state(self) -> ColumnElement[str]:
        m, now_ms = messages.c, int(self._clock.now().wall * 1000)
        given_up = m.delivery_count > func.coalesce(owners.c.retry, RETRY)
        letter = and_(given_up, parked.c.reason != "", func.coalesce(parked.c.publishes, 0) == 0)
        due = m.delivery_date <= now_ms
        return case((letter, DEAD_LETTER), (given_up, GIVEN_UP), (due, "due"), else_="waiting").label("state")

    def _columns(self) -> Select[Any]:
        now_us, o = self._clock.now().us, owners.c
        asleep = or_(o.limbo_id.is_(None), o.holder == FREE, o.beat_us + o.lease_s * 1_000_000 < now_us)
        return select(
            messages,
            *(c for c in parked.c if c.name not in _UNSEEN),
            o.app,
            o.holder,
            self._state(),
            asleep.label("asleep"),
        ).select_from(_ALL)


def _chosen(query: Select[Any], limit: int | None, id_: str | None) -> Select[Any]:
    """Return the chosen messages, the longest due first; `id_` is the id of the row, of the copy, or of the lineage."""
    m, p = messages.c, parked.c
    if id_ is not None:
        number = int(id_) if id_.isascii() and id_.isdigit() and len(id_) < 19 else -1
        known = select(p.msg_id).where(or_(p.copy_id == id_, p.lineage == id_))
        query = query.where(or_(m.msg_id == number, m.msg_id.in_(known)))
    return query.order_by(m.delivery_date, m.msg_id).limit(limit)


def _listed(row: Any) -> ParkedSummary:
    return ParkedSummary(
        id=row["msg_id"],
        to=row["port_name"],
        source=row["source"] or "",
        state=row["state"],
        due=row["delivery_date"] / 1000,
        parked=None if row["parked_us"] is None else row["parked_us"] / 1e6,
        count=row["delivery_count"],
        publishes=row["publishes"] or 0,
        failures=row["failures"] or 0,
        generation=row["generation"] or 0,
        reason=row["reason"] or "",
        lineage=row["lineage"] or "",
        copy_id=row["copy_id"] or "",
        last_error=row["last_error"] or "",
        body_bytes=row["body_bytes"] or 0,
        app=row["app"] or row["msg_src_name"],
        holder=row["holder"] or "",
        asleep=bool(row["asleep"]),
    )
