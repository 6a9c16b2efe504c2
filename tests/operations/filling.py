# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Moves dead letters of ours on a real broker into a store, and looks at what a replay has sent back."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.dead_letters.sending.sync_connection import SyncConnection
from redeliver_mw.message import Delivery, Destination, Outgoing, Properties
from redeliver_mw.operations import Store, collect
from tests.brokers import Broker
from tests.faults.letters import declare, take
from tests.pipeline.letters import OURS


def letters_of(dlq: str, source: str, bodies: Iterable[bytes], **headers: str) -> list[Outgoing]:
    """Return dead letters of ours that were consumed from `source`, with ids of their own."""
    return [
        Outgoing(
            Destination(dlq),
            body,
            OURS
            | {
                "redeliver_copy_id": f"{dlq}-copy-{n}",
                "redeliver_lineage": f"{dlq}-{n}",
                "redeliver_original_destination": source,
                "redeliver_failures_for": source,
                "redeliver_generation": "0",
            }
            | headers,
            Properties(message_id=f"{dlq}-m{n}", content_type="text/plain"),
        )
        for n, body in enumerate(bodies)
    ]


def send(broker: Broker, outs: Iterable[Outgoing]) -> None:
    """Publish messages, each confirmed."""
    with SyncConnection(adapter_for(broker.url)) as line:
        room, refused = threading.Semaphore(500), list[str]()

        def answered(verdict: str, why: str) -> None:
            if verdict != "ok":
                refused.append(why)
            room.release()

        for out in outs:
            assert room.acquire(timeout=60)
            line.adapter.publish(out, answered)
        for _ in range(500):
            assert room.acquire(timeout=60)
        assert refused == []


def fill(broker: Broker, store: Store, source: str, bodies: Iterable[bytes], *, dlq: str = "", **headers: str) -> None:
    """Put dead letters of `source` into the store, through a queue of the broker; `source` is there and empty."""
    dlq = dlq or f"dlq.{source}"
    declare(broker, dlq, source)
    outs = letters_of(dlq, source, bodies, **headers)
    send(broker, outs)
    assert sum(one.collected for one in collect(broker.url, [dlq], store).queues) == len(outs)


def arrived(broker: Broker, source: str) -> list[Delivery]:
    """Take every message off a queue, and return them in order."""
    return take(broker, source)
