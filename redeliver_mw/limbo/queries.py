# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds, counts, removes and assembles messages from their tables. Works within its caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, Table, case, delete, func, select, update

from ..errors import ConfigError
from ..message import Destination, Outgoing, Properties
from ..storage import schema
from ..storage.header_values import BAD, UnreadableValue, from_json
from .leases import still_held
from .rows import BOOLEAN, DOUBLE, LONG, MOST_COUNTED, NULL, Parked, milliseconds

AT_ONCE = 500  # ids in one statement


def chunks(ids: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), AT_ONCE):
        yield list(ids[start : start + AT_ONCE])


def due_ids(connection: Connection, limbo_id: int, now_ms: int, retry: int, limit: int) -> list[tuple[int, int, int]]:
    """Return delivery date, id and body bytes of the messages of one part that are due, the longest due first."""
    m, p = schema.messages.c, schema.parked.c
    found = (
        select(m.delivery_date, m.msg_id)
        .where(m.limbo_id == limbo_id, m.delivery_date <= now_ms, m.delivery_count <= retry)
        .order_by(m.delivery_date)
        .limit(limit)
        .subquery()
    )
    sized = select(found.c.delivery_date, found.c.msg_id, func.coalesce(p.body_bytes, 0)).select_from(
        found.outerjoin(schema.parked, p.msg_id == found.c.msg_id)
    )
    return sorted((date, id_, size) for date, id_, size in connection.execute(sized))


def waiting(connection: Connection, parts: Sequence[int], retry: int) -> tuple[int, int | None]:
    """Return how many messages of these parts wait, and the first delivery date; those given up do not count."""
    m = schema.messages.c
    chosen = select(func.count(), func.min(m.delivery_date)).where(m.limbo_id.in_(parts), m.delivery_count <= retry)
    number, first = connection.execute(chosen).one()
    return number, first


def found_of(connection: Connection, ids: Sequence[int]) -> Iterator[FoundMessages]:
    """Return all table rows of these messages, in this order; messages that are gone are left out."""
    for some in chunks(ids):
        yield from _some(connection, some)


def _some(connection: Connection, ids: list[int]) -> Iterator[FoundMessages]:
    messages = {row["msg_id"]: row for row in _lines(connection, schema.messages, ids)}
    parked = {row["msg_id"]: row for row in _lines(connection, schema.parked, ids)}
    bodies = {row["msg_id"]: row["msg_body"] for row in _lines(connection, schema.bodies, ids)}
    replies = {row["msg_id"]: row["jms_replyto"] for row in _lines(connection, schema.reply_tos, ids)}
    types = {(row["msg_id"], row["prop_name"]): row["prop_type"] for row in _lines(connection, schema.ptypes, ids)}
    props: dict[int, list[tuple[str, str | None, int | None]]] = defaultdict(list)
    for row in _lines(connection, schema.props, ids):
        id_, name = row["msg_id"], row["prop_name"]
        props[id_].append((name, row["prop_value"], types.get((id_, name))))
    for id_ in ids:
        if id_ in messages:
            yield FoundMessages(messages[id_], parked.get(id_, {}), bodies.get(id_), replies.get(id_), props[id_])


def _lines(connection: Connection, table: Table, ids: list[int]) -> Sequence[Any]:
    return connection.execute(select(table).where(table.c.msg_id.in_(ids))).mappings().all()


def remove(connection: Connection, ids: Sequence[int]) -> None:
    """Remove all rows of these messages."""
    for some in chunks(ids):
        for table in schema.OF_A_MESSAGE:
            connection.execute(delete(table).where(table.c.msg_id.in_(some)))


def count_failure(
    connection: Connection, id_: int, again: float, why: str, retry: int, *, give_up: bool = False
) -> None:
    """Count one more failed publish; the next is due at `again`, in seconds since 1970, if there is to be one.

    The statement increments the count in the table, because somebody may have reset it meanwhile. `give_up`: no further
    publish.
    """
    m, p = schema.messages, schema.parked
    more = case((m.c.delivery_count < MOST_COUNTED, m.c.delivery_count + 1), else_=m.c.delivery_count)
    counted = retry + 1 if give_up else more
    # A message that is given up keeps its date: with its count reset by hand, it is due at once.
    later = case((m.c.delivery_count < retry, milliseconds(again)), else_=m.c.delivery_date)
    date = m.c.delivery_date if give_up else later
    connection.execute(update(m).where(m.c.msg_id == id_).values(delivery_count=counted, delivery_date=date))
    connection.execute(update(p).where(p.c.msg_id == id_).values(publishes=p.c.publishes + 1, last_error=why))


def known_copies(connection: Connection, copy_ids: list[str], app: str, broker: str) -> dict[str, int]:
    """Return the copies that this app has parked already.

    Another app may have made the same id for an identical message.
    """
    known: dict[str, int] = {}
    p, m, o = schema.parked, schema.messages, schema.owners
    joined = p.join(m, p.c.msg_id == m.c.msg_id).join(o, o.c.limbo_id == m.c.limbo_id)
    for start in range(0, len(copy_ids), AT_ONCE):
        some = copy_ids[start : start + AT_ONCE]
        query = select(p.c.copy_id, p.c.msg_id).select_from(joined).where(p.c.copy_id.in_(some))
        for copy_id, id_ in connection.execute(query.where(o.c.app == app, o.c.broker == broker)):
            known[copy_id] = id_
    return known


def fenced(connection: Connection, rows: Sequence[Parked]) -> list[Parked]:
    """Return the rows whose token is valid until the commit."""
    by_token: dict[int, dict[int, list[Parked]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_token[row.token][row.limbo_id].append(row)
    mine: list[Parked] = []
    for token, of_part in by_token.items():
        good = still_held(connection, dict.fromkeys(of_part, token), for_writing=True)
        mine += [row for limbo_id in good for row in of_part[limbo_id]]
    return mine


# -- assembling -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FoundMessages:
    """Holds the table rows of one message: columns by name; missing rows are empty."""

    message: Mapping[str, Any]
    parked: Mapping[str, Any]
    body: bytes | None
    reply_to: bytes | None
    props: list[tuple[str, str | None, int | None]]


def parked_of(found: FoundMessages, token: int, *, strict: bool = True) -> Parked:
    """Return the message as it was parked, or as it was repaired.

    If the message cannot be assembled, `problem` gives the reason, and its `out` must not be published. Not `strict`:
    only to look at the message; a type of a driver that is not loaded becomes Python's own.
    """
    m, p = found.message, found.parked
    problem = ""
    try:
        out = _outgoing(found, strict)
    except (*BAD, ConfigError) as error:
        problem = (
            str(error) if isinstance(error, UnreadableValue | ConfigError) else f"its lines are damaged: {error!r}"
        )
        out = Outgoing(Destination("?"), found.body or b"", {})
    return Parked(
        id=m["msg_id"],
        limbo_id=m["limbo_id"],
        token=token,
        out=out,
        due=m["delivery_date"] / 1000,
        count=m["delivery_count"],
        wire=p.get("wire"),
        publishes=p.get("publishes") or 0,
        parked_us=p.get("parked_us") or 0,
        last_error=p.get("last_error") or "",
        source=p.get("source") or "",
        lineage=p.get("lineage") or "",
        failures=p.get("failures") or 0,
        generation=p.get("generation") or 0,
        hop=p.get("hop") or 0,
        reason=p.get("reason") or "",
        problem=problem,
    )


def _outgoing(found: FoundMessages, strict: bool) -> Outgoing:
    m, p = found.message, found.parked
    exact = orjson.loads(p["exact"]) if p.get("exact") else {"headers": [], "properties": {}}
    headers: dict[str, Any] = {name: _told_value(name, value, kind) for name, value, kind in found.props}
    headers |= {from_json(name): from_json(value, strict) for name, value in exact["headers"]}
    headers |= orjson.loads(p["marks"]) if p.get("marks") else {}
    properties: dict[str, Any] = {name: from_json(value, strict) for name, value in exact["properties"].items()}
    for name, value in (("type", m["jms_type"]), ("correlation_id", m["jms_correlationid"])):
        if value is not None:
            properties[name] = value
    if found.reply_to is not None:
        properties["reply_to"] = found.reply_to.decode("utf-8", "surrogateescape")
    if m["jms_expiration"] is not None:
        properties["expires_at_us"] = m["jms_expiration"] * 1000
    target, body = Destination.parse(m["port_name"]), found.body or b""
    return Outgoing(target, body, headers, Properties(**properties), p.get("copy_id") or "")


def _told_value(name: str, text: str | None, kind: int | None) -> Any:
    """Return a header's value from its text and type; a header without a type is a text."""
    try:
        if kind == NULL or text is None:
            return None
        if kind == BOOLEAN:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        if kind == LONG:
            return int(text)
        if kind == DOUBLE:
            return float(text)
    except (ValueError, KeyError):
        raise UnreadableValue(f"property {name!r}: {text!r} is no value of type {kind}") from None
    return text
