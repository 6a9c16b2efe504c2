# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Who may publish what is parked: parts of the limbo, their leases, and the tokens that fence the late ones off.

A running program holds one part of its own (`dms_limbo`: a name and a `limbo_id`), in which it parks, and for a
while the parts of dead ones. Whoever takes a part raises its token; what is done under an older token is refused
by the database, in the same transaction. A holder gives signs of life by raising `beat`; who watches one that does
not change for its lease, on the watcher's own monotonic clock, takes the part over. No wall clock is compared with
another machine's.

Nothing here locks or commits: every function works within its caller's transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, exists, func, or_, select, update

from ..clock import Moment
from ..storage.schema import messages, owners, parts

IDS_OF_A_PART = 10**12  # so that ids of messages never meet, and none is used twice
FREE = ""


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """Who asks: only an `app` on the same `broker` may have a dead one's rows. `lease` in seconds."""

    app: str
    broker: str
    name: str  # host and process, for people
    part: str  # the name of its own part, as far as it is free
    lease: float
    retry: int


@dataclass(slots=True)
class LeaseWatch:
    """Of other holders: what was seen of each, and since when (monotonic)."""

    seen: dict[int, tuple[int, int, float]] = field(default_factory=dict)

    def silent_for(self, limbo_id: int, token: int, beat: int, now: float) -> float:
        """Seconds without a change, as far as it was watched."""
        known = self.seen.get(limbo_id)
        if known is None or known[:2] != (token, beat):
            self.seen[limbo_id] = token, beat, now
            return 0.0
        return now - known[2]


def claim_own(connection: Connection, who: LeaseOwner, now: Moment) -> tuple[int, int]:
    """A part of one's own: the one with this name, or, where another program holds that, `name/2` and so on.

    Answers `limbo_id` and token.
    """
    number = 1
    while True:
        name = who.part if number == 1 else f"{who.part}/{number}"
        limbo_id = connection.execute(select(parts.c.limbo_id).where(parts.c.limbo_name == name)).scalar()
        if limbo_id is None:
            return _made(connection, name, who, now)
        row = connection.execute(select(owners).where(owners.c.limbo_id == limbo_id)).one_or_none()
        number += 1
        if row is None or (row.app, row.broker, row.holder) != (who.app, who.broker, FREE):
            continue
        if (token := _take(connection, limbo_id, row.token, row.beat, who, now)) is not None:
            return limbo_id, token


def _made(connection: Connection, name: str, who: LeaseOwner, now: Moment) -> tuple[int, int]:
    limbo_id = (connection.execute(select(func.max(parts.c.limbo_id))).scalar() or 0) + 1
    connection.execute(parts.insert().values(limbo_name=name, limbo_id=limbo_id))
    connection.execute(
        owners.insert().values(
            limbo_id=limbo_id,
            app=who.app,
            broker=who.broker,
            holder=who.name,
            token=1,
            beat=0,
            beat_us=now.us,
            lease_s=who.lease,
            retry=who.retry,
            next_id=limbo_id * IDS_OF_A_PART + 1,
        )
    )
    return limbo_id, 1


def _take(connection: Connection, limbo_id: int, token: int, beat: int, who: LeaseOwner, now: Moment) -> int | None:
    """The new token; None where the holder has moved meanwhile."""
    unchanged = and_(owners.c.limbo_id == limbo_id, owners.c.token == token, owners.c.beat == beat)
    taken = (
        update(owners)
        .where(unchanged)
        .values(holder=who.name, token=token + 1, beat=0, beat_us=now.us, lease_s=who.lease, retry=who.retry)
    )
    return token + 1 if connection.execute(taken).rowcount == 1 else None


def beat(connection: Connection, held: dict[int, int], now: Moment) -> dict[int, int]:
    """A sign of life for each part in `held` (limbo_id -> token); answers those that are still ours."""
    kept = {}
    for limbo_id, token in held.items():
        alive = update(owners).where(_ours(limbo_id, token)).values(beat=owners.c.beat + 1, beat_us=now.us)
        if connection.execute(alive).rowcount == 1:
            kept[limbo_id] = token
    return kept


def take_over(
    connection: Connection, who: LeaseOwner, held: dict[int, int], watch: LeaseWatch, now: Moment
) -> dict[int, int]:
    """The parts that were given back with messages in them, or whose holder is dead; with our new token."""
    waiting = exists().where(messages.c.limbo_id == owners.c.limbo_id)
    others = select(owners).where(
        owners.c.app == who.app, owners.c.broker == who.broker, or_(owners.c.holder != FREE, waiting)
    )
    taken = {}
    for row in connection.execute(others).all():
        if row.limbo_id in held:
            continue
        silent = watch.silent_for(row.limbo_id, row.token, row.beat, now.mono)
        over = row.holder == FREE or silent >= row.lease_s
        if over and (token := _take(connection, row.limbo_id, row.token, row.beat, who, now)) is not None:
            taken[row.limbo_id] = token
    return taken


def give_back(connection: Connection, held: dict[int, int]) -> None:
    """Anybody may take these at once."""
    for limbo_id, token in held.items():
        connection.execute(update(owners).where(_ours(limbo_id, token)).values(holder=FREE))


def is_empty(connection: Connection, limbo_id: int) -> bool:
    return not connection.execute(select(exists().where(messages.c.limbo_id == limbo_id))).scalar()


def still_held(connection: Connection, held: dict[int, int], *, for_writing: bool = False) -> set[int]:
    """The parts of `held` whose token is still the one there. `for_writing`: nobody takes them before the commit."""
    query = select(owners.c.limbo_id, owners.c.token).where(owners.c.limbo_id.in_(list(held)))
    rows = connection.execute(query.with_for_update() if for_writing else query).all()
    return {limbo_id for limbo_id, token in rows if held[limbo_id] == token}


def reserve(connection: Connection, limbo_id: int, token: int, count: int) -> int | None:
    """The first of `count` ids for new messages in a part; None, and nothing done, where it is another's by now."""
    more = update(owners).where(_ours(limbo_id, token)).values(next_id=owners.c.next_id + count)
    if connection.execute(more).rowcount != 1:
        return None
    after: int = connection.execute(select(owners.c.next_id).where(owners.c.limbo_id == limbo_id)).scalar_one()
    return after - count


def _ours(limbo_id: int, token: int) -> Any:
    return and_(owners.c.limbo_id == limbo_id, owners.c.token == token)
