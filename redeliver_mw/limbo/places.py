# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Stores places in the order by key in the limbo's database. Works within its caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, select

from ..redelivery.order_places import FoundPlace, OrderPlace, PlaceKind
from ..storage.schema import messages, owners, parked, places


def line_of(place: OrderPlace, source: str) -> dict[str, Any]:
    """Return the row of a place, without the columns for its owner."""
    return {
        "source": source,
        "order_key": place.key,
        "number": place.number,
        "message": place.name,
        "kind": int(place.kind),
        "due_us": place.due_us,
    }


def write_places(connection: Connection, app: str, broker: str, lines: Iterable[dict[str, Any]]) -> None:
    """Store these places; a place that exists already is updated."""
    fresh = {(line["source"], line["order_key"], line["number"]): line for line in lines}
    for source, key, number in fresh:
        forget(connection, app, broker, source, [(key, number)])
    if fresh:
        connection.execute(places.insert(), [{"app": app, "broker": broker} | line for line in fresh.values()])


def forget(connection: Connection, app: str, broker: str, source: str, gone: Sequence[tuple[str, int]]) -> None:
    """Remove these places of a source, each given as its key and number."""
    c = places.c
    ours = and_(c.app == app, c.broker == broker, c.source == source)
    for key, number in gone:
        connection.execute(delete(places).where(ours, c.order_key == key, c.number == number))


def places_of(connection: Connection, app: str, broker: str, source: str) -> list[FoundPlace]:
    """Return the places of a source, and for each whether its copy is parked."""
    c, p, m, o = places.c, parked, messages, owners
    ours = and_(c.app == app, c.broker == broker, c.source == source)
    joined = p.join(m, p.c.msg_id == m.c.msg_id).join(o, o.c.limbo_id == m.c.limbo_id)
    copies = select(p.c.lineage).select_from(joined).where(o.c.app == app, o.c.broker == broker, p.c.source == source)
    there = {lineage for (lineage,) in connection.execute(copies)}
    return [
        FoundPlace(
            OrderPlace(row.number, row.order_key, row.message, PlaceKind(row.kind), row.due_us), row.message in there
        )
        for row in connection.execute(select(places).where(ours).order_by(c.number))
    ]
