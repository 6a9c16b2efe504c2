# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which program may publish which parked messages: parts of the limbo, their leases, and fencing tokens.

A running program holds one part of its own (`dms_limbo`: a name and a `limbo_id`), in which it parks messages, and
temporarily the parts of dead programs. A program that takes a part raises the part's token. The database refuses a
change under an older token, in the same transaction. A holder sends heartbeats by raising `beat`. A program that sees
no change of `beat` for the length of the lease, on its own monotonic clock, takes the part over. No wall clock is
compared with another machine's.

The functions here neither lock nor commit: each works within its caller's transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, exists, func, or_, select, update

from ..clock import Moment
from ..storage.schema import messages, owners, parts

IDS_OF_A_PART = 10**12  # so that ids of messages from two parts never collide, and no id is used twice
FREE = ""


@dataclass(frozen=True, slots=True)
class LeaseOwner:
    """Identifies the program that asks: only an `app` on the same `broker` may take a dead one's rows.

    `lease` in seconds.
    """

    app: str
    broker: str
    name: str  # host and process, for people to read
    part: str  # the name of its own part, if that name is free
    lease: float
    retry: int


@dataclass(slots=True)
class LeaseWatch:
    """Remembers the heartbeats of other holders, and since when each is unchanged (monotonic)."""

    seen: dict[int, tuple[int, int, float]] = field(default_factory=dict)

    def silent_for(self, limbo_id: int, token: int, beat: int, now: float) -> float:
        """Return the seconds without a change of `beat`, as far as the holder was watched."""
        known = self.seen.get(limbo_id)
        if known is None or known[:2] != (token, beat):
            self.seen[limbo_id] = token, beat, now
            return 0.0
        return now - known[2]


def claim_own(connection: Connection, who: LeaseOwner, now: Moment) -> tuple[int, int]:
    """Claim a part for this program: the part with this name, or `name/2` and so on where another program holds that.

    Returns `limbo_id` and token.
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
    """Return the new token; None if the holder has changed the row meanwhile."""
    unchanged = and_(owners.c.limbo_id == limbo_id, owners.c.token == token, owners.c.beat == beat)
    taken = (
        update(owners)
        .where(unchanged)
        .values(holder=who.name, token=token + 1, beat=0, beat_us=now.us, lease_s=who.lease, retry=who.retry)
    )
    return token + 1 if connection.execute(taken).rowcount == 1 else None


def beat(connection: Connection, held: dict[int, int], now: Moment) -> dict[int, int]:
    """Write a heartbeat for each part in `held` (limbo_id -> token). Return the parts that are still ours."""
    kept = {}
    for limbo_id, token in held.items():
        alive = update(owners).where(_ours(limbo_id, token)).values(beat=owners.c.beat + 1, beat_us=now.us)
        if connection.execute(alive).rowcount == 1:
            kept[limbo_id] = token
    return kept


def take_over(
    connection: Connection, who: LeaseOwner, held: dict[int, int], watch: LeaseWatch, now: Moment
) -> dict[int, int]:
    """Take parts that were given back with messages in them, or whose holder is dead.

    Return them with our new tokens.
    """
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
    """Give parts back, so that any program may take them at once."""
    for limbo_id, token in held.items():
        connection.execute(update(owners).where(_ours(limbo_id, token)).values(holder=FREE))


def is_empty(connection: Connection, limbo_id: int) -> bool:
    return not connection.execute(select(exists().where(messages.c.limbo_id == limbo_id))).scalar()


def still_held(connection: Connection, held: dict[int, int], *, for_writing: bool = False) -> set[int]:
    """Return the parts of `held` whose token is current. `for_writing`: nobody can take them before the commit."""
    query = select(owners.c.limbo_id, owners.c.token).where(owners.c.limbo_id.in_(list(held)))
    rows = connection.execute(query.with_for_update() if for_writing else query).all()
    return {limbo_id for limbo_id, token in rows if held[limbo_id] == token}


def reserve(connection: Connection, limbo_id: int, token: int, count: int) -> int | None:
    """Return the first of `count` reserved ids for new messages; None if another holds the part."""
    more = update(owners).where(_ours(limbo_id, token)).values(next_id=owners.c.next_id + count)
    if connection.execute(more).rowcount != 1:
        return None
    after: int = connection.execute(select(owners.c.next_id).where(owners.c.limbo_id == limbo_id)).scalar_one()
    return after - count


def _ours(limbo_id: int, token: int) -> Any:
    return and_(owners.c.limbo_id == limbo_id, owners.c.token == token)
