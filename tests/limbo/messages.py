# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes messages to be parked, and looks at the tables from outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import create_engine

from redeliver_mw.limbo import Limbo, Parking
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.message import Destination, Outgoing, Properties

ORDERS = Destination("orders")


def message(n: int = 0, *, target: Destination = ORDERS, **more: Any) -> Outgoing:
    """Return a short form of a retry copy as `copies` makes it, with the number `n`."""
    headers = {
        "customer": f"c{n}",
        "redeliver_failures": "3",
        "redeliver_failures_for": "orders",
        "redeliver_hop": "3",
        "redeliver_lineage": f"lineage-{n}",
        "redeliver_generation": "1",
        "redeliver_original_kind": "queue",
        "redeliver_original_destination": "orders",
        "redeliver_not_before": "2026-01-01T00:00:00.000000Z",
    }
    given: dict[str, Any] = {"body": b"order %d" % n, "headers": headers, "copy_id": f"copy-{n}"}
    return Outgoing(target, **(given | {"properties": Properties(message_id=f"ID:{n}")} | more))


def parkings(numbers: Iterable[int], due: float) -> list[Parking]:
    return [Parking(message(n), due) for n in numbers]


def limbo(url: str, clock: ManualClock, **more: Any) -> Limbo:
    """Return a limbo that is not open yet; several limbos on one URL are as several programs."""
    given: dict[str, Any] = {"app": "shop", "broker": "mq:5672", "host": "east", "busy_timeout": 0.2, "clock": clock}
    return Limbo(url, **(given | more))


def crash(store: Limbo) -> None:
    """Close the connection of the store, as if its program were gone: nothing is given back."""
    store._db.close()


def sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement as somebody types it into the database, from outside, and return the rows."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            answer = connection.exec_driver_sql(statement)
            return [tuple(row) for row in answer] if answer.returns_rows else []
    finally:
        engine.dispose()


def parked_bodies(url: str) -> list[str]:
    found = sql(url, "SELECT msg_body FROM dms_limbo_msg JOIN dms_limbo_body USING (msg_id)")
    return [bytes(body).decode() for (body,) in found]


def count(url: str) -> int:
    return int(sql(url, "SELECT count(*) FROM dms_limbo_msg")[0][0])
