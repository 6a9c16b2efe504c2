# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts thousands of dead letters on a real broker, of each kind that can be told apart or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.message import Destination, Outgoing, Properties
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare
from tests.pipeline.letters import OURS


class Nobody:
    """Is a sink that waits for the connection, and for nothing else."""

    def __init__(self) -> None:
        self.up = threading.Event()

    def connected(self, capabilities: object, /) -> None:
        self.up.set()

    def ready(self, source: Destination, generation: int, /) -> None: ...
    def arrived(self, batch: object, /) -> None: ...
    def lost(self, generation: int, error: BaseException | None, /) -> None: ...
    def failed(self, error: BaseException, source: Destination | None, /) -> None: ...


def letters(dlq: str, number: int) -> Iterator[Outgoing]:
    """Yield letters by thirds: ours, and messages of strangers with an id and without one. No two bodies are alike."""
    for n in range(number):
        ours = OURS | {"redeliver_copy_id": f"copy-{n}", "redeliver_lineage": f"lineage-{n}"}
        headers = ours if n % 3 == 0 else {"tenant": "a"}
        properties = Properties(message_id=f"m{n}") if n % 3 < 2 else Properties()
        yield Outgoing(Destination(dlq), b"\xff%08d" % n * 40, headers, properties)


def publish_letters(broker: Broker, dlq: str, number: int) -> set[bytes]:
    """Publish so many letters, each confirmed, and return their bodies."""
    declare(broker, dlq)
    adapter, sink, room = adapter_for(broker.url), Nobody(), threading.Semaphore(500)
    adapter.start(sink)
    assert sink.up.wait(60)
    refused: list[str] = []

    def answered(verdict: str, why: str) -> None:
        if verdict != "ok":
            refused.append(why)
        room.release()

    bodies = set()
    for out in letters(dlq, number):
        assert room.acquire(timeout=60)
        bodies.add(out.body)
        adapter.publish(out, answered)
    for _ in range(500):
        assert room.acquire(timeout=60)
    adapter.close()
    assert refused == []
    return bodies


def depth(broker: Broker, dlq: str) -> int:
    with connect(broker.url) as session:
        return session.depth(dlq)
