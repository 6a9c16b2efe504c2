# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts letters, as pika hands them out, into a store without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import select

from redeliver_mw.adapter.protocol import Adapter
from redeliver_mw.dead_letters import Packed
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.operations import Store, page
from redeliver_mw.operations.collect import ShelfInStore
from redeliver_mw.operations.letters import packed_of
from redeliver_mw.operations.operation import begin_operation
from redeliver_mw.operations.tables import bodies, letters
from redeliver_pika.capabilities import capabilities
from tests.pipeline.letters import written

DLQ = Destination("DLQ.orders")
RABBITMQ = SimpleNamespace(broker="host:5672/", capabilities=capabilities("4.3.0", 131072, exact_headers=True))


def shelf(store: Store, queue: Destination = DLQ) -> ShelfInStore:
    """Return what stores the letters of one drain of this queue."""
    operation = begin_operation(store, "collect", filter_=queue.short, options={}, total=0)
    return ShelfInStore(store, operation, queue, cast(Adapter, RABBITMQ))


def put(store: Store, *deliveries: Delivery, sure: bool = True, generation: int = 1) -> ShelfInStore:
    """Store these letters as one batch of a drain of its own."""
    one = shelf(store)
    assert len(written(one, generation, deliveries)) == len(deliveries)
    if sure:
        one.sure(1)
        one.finish()
    return one


def ids(store: Store) -> list[str]:
    """Return the ids of all letters that wait, sorted."""
    return sorted(one.dl_id for one in page(store, limit=100_000).letters)


def packed(store: Store) -> list[Packed]:
    """Return the exact letters, in the order in which they were stored."""
    asked = (
        select(letters.c.queue, bodies.c.redelivered, bodies.c.head, bodies.c.body)
        .join_from(letters, bodies, letters.c.letter_id == bodies.c.letter_id)
        .order_by(letters.c.letter_id)
    )
    with store.reading() as connection:
        return [packed_of(*row) for row in connection.execute(asked)]


def rows(store: Store, statement: Any) -> Sequence[Any]:
    with store.reading() as connection:
        return connection.execute(statement).all()
