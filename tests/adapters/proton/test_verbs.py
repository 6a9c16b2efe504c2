# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries what the record says of AMQP's outcomes on Artemis, with the bare driver on the real broker."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import proton
import pytest
from proton.reactor import Container

from redeliver_mw.adapter.capabilities import SettlementOutcome, Trust, VerbRecord
from redeliver_proton import records
from redeliver_proton.brokers.artemis import verbs as v
from redeliver_proton.brokers.artemis.capabilities import X_ADDRESS, capabilities
from tests.adapters.proton.bare import Transaction
from tests.brokers import Broker
from tests.brokers._amqp10 import plain_connection
from tests.contract.proton_world import Witness
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

FIXTURES = {"2.44": "artemis244"}  # 2.40 is tried by hand
PATIENCE = 30.0  # seconds for what comes
QUIET = 0.1  # seconds in which a message comes that lies there
DELAY = 1.5  # seconds from now, most of which preparations take


class Bench:
    """Holds the queues of one trial, and tells what is to be seen of a message in them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.witness = Witness(broker)
        self._open: list[Any] = []
        self._consumer, self._other = self.connect(), self.connect()

    def url(self, port: int | None = None) -> str:
        return f"amqp://{self.broker.user}:{self.broker.password}@{self.broker.host}:{port or self.broker.port}"

    def connect(self, port: int | None = None) -> Any:
        self._open.append(plain_connection(self.url(port), timeout=PATIENCE, allowed_mechs="PLAIN"))
        return self._open[-1]

    def close(self) -> None:
        for connection in self._open:
            with contextlib.suppress(Exception):  # some were cut on purpose
                connection.close()
        self.witness.close()

    def queue(self, **settings: Any) -> str:
        name = f"verbs.{uuid.uuid4().hex}"
        if settings:
            self.witness.settings(name, **settings)
        self.witness.create(name)
        return name

    def put(self, queue: str, **annotations: Any) -> None:
        message = proton.Message(body=b"m", durable=True)
        if annotations:
            message.annotations = {proton.symbol(name.replace("_", "-")): it for name, it in annotations.items()}
        self.witness.send(queue, message)

    def link(self, queue: str, connection: Any = None) -> Any:
        return (connection or self._consumer).create_receiver(queue, name=uuid.uuid4().hex)

    def met(self, link: Any, seconds: float) -> tuple[proton.Message, proton.Delivery] | None:
        """Return the next delivery, unsettled, or None if none comes within `seconds`."""
        try:
            message = link.receive(timeout=seconds)
        except proton.Timeout:
            return None
        return message, link.fetcher.unsettled.pop()

    def take(self, link: Any) -> proton.Delivery:
        met = self.met(link, PATIENCE)
        assert met is not None
        assert met[0].delivery_count == 0
        return met[1]

    def fate(self, queue: str, dead: str = "", *, accepted: bool = False) -> SettlementOutcome:
        """Return what became of the one message that was in `queue`, asked by another consumer.

        It asks over one link for each queue: a link that stopped waiting keeps its credit, and would take a late
        message away from the next one.
        """
        link = self.link(queue, self._other)
        dead_link = self.link(dead, self._other) if dead else None
        nothing = 0
        while nothing < 3:  # a moment lies between leaving one queue and reaching another
            if (met := self.met(link, QUIET)) is not None:
                return "back, counted" if met[0].delivery_count else "back"
            if dead_link is not None and self.met(dead_link, QUIET) is not None:
                return "dead-letter queue"
            nothing += self.is_empty(queue)
        return "gone" if accepted else "destroyed"

    def is_empty(self, queue: str) -> bool:
        """Return whether the queue is empty, also of what the broker believes a consumer to have."""
        (row,) = self.witness.queues("name", queue)
        return int(row["messageCount"]) <= 0


def settle(link: Any, delivery: proton.Delivery, state: Any, **local: Any) -> None:
    """Settle a delivery as `state`, and wait until that is written."""
    for name, value in local.items():
        setattr(delivery.local, name, value)
    delivery.update(state)
    delivery.settle()
    link.connection.wait(lambda: link.connection.conn.transport.pending() <= 0, timeout=PATIENCE)


def settled(state: Any, **local: Any) -> Callable[[Bench], SettlementOutcome]:
    """Return the trial of one outcome."""

    def trial(bench: Bench) -> SettlementOutcome:
        dead = bench.queue()
        queue = bench.queue(deadLetterAddress=dead)
        bench.put(queue)
        link = bench.link(queue)
        settle(link, bench.take(link), state, **local)
        return bench.fate(queue, dead, accepted=state == proton.Delivery.ACCEPTED)

    return trial


def undeliverable_here(bench: Bench) -> SettlementOutcome:
    queue = bench.queue()
    bench.put(queue)
    link = bench.link(queue)
    settle(link, bench.take(link), proton.Delivery.MODIFIED, undeliverable=True)
    if bench.met(link, 4 * QUIET) is not None:
        return "back"
    return "back, to others only" if bench.fate(queue) == "back" else "destroyed"


def rejected_bare(bench: Bench) -> SettlementOutcome:
    """Return what becomes of a rejected message that has nowhere to go.

    There are two ways to have nowhere to go, which have to be alike.
    """
    found = set()
    for address in ("", f"unbound.{uuid.uuid4().hex}"):
        queue = bench.queue(deadLetterAddress=address)
        bench.put(queue)
        link = bench.link(queue)
        settle(link, bench.take(link), proton.Delivery.REJECTED)
        found.add(bench.fate(queue, address))
    (outcome,) = found
    return outcome


def rejected_dead(bench: Bench) -> SettlementOutcome:
    dead = bench.queue()
    bench.witness.settings(dead, deadLetterAddress=dead)
    queue = bench.queue(deadLetterAddress=dead)
    bench.put(queue)
    for one in (queue, dead):
        link = bench.link(one)
        settle(link, bench.take(link), proton.Delivery.REJECTED)
    met = bench.met(bench.link(dead), PATIENCE)
    assert met is not None
    assert met[0].annotations[proton.symbol(X_ADDRESS)] == dead
    return "dead-letter queue"


def ends(bench: Bench, end: Callable[[Any, Any], None], port: int | None = None) -> set[SettlementOutcome]:
    """Return what becomes of each of three deliveries, two of them merely fetched, when the end comes."""
    queue = bench.queue()
    for _ in range(3):
        bench.put(queue)
    connection = bench.connect(port)
    link = connection.create_receiver(queue, name=uuid.uuid4().hex, credit=3)
    bench.take(link)
    connection.wait(lambda: link.link.queued + len(link.fetcher.incoming) >= 2, timeout=PATIENCE)
    end(connection, link)
    connection.timeout = 0.1  # it is asked to close in the end, and one that was cut never answers
    return {bench.fate(queue) for _ in range(3)}


def detached(bench: Bench) -> SettlementOutcome:
    found = ends(bench, lambda connection, link: link.close()) | ends(
        bench, lambda connection, link: connection.close()
    )
    (outcome,) = found
    return outcome


def lost(bench: Bench) -> SettlementOutcome:
    """Return what becomes of deliveries whose connection is cut.

    `by chance` means that either outcome may be seen, and nothing else.
    """
    found: set[SettlementOutcome] = set()
    for _ in range(3):
        proxy = Proxy(bench.broker.host, bench.broker.port)
        found |= ends(bench, lambda connection, link, proxy=proxy: proxy.cut(), proxy.port)
        proxy.close()
    assert found <= {"back", "back, counted"}
    return "back, counted by chance"


def delay(bench: Bench) -> SettlementOutcome:
    return delayed(bench, int(1000 * (time.time() + DELAY)))


def delay_text(bench: Bench) -> SettlementOutcome:
    due = int(1000 * (time.time() + 60))
    (outcome,) = {delayed(bench, value) for value in (str(due), proton.timestamp(due))}
    return outcome


def delayed(bench: Bench, due: Any) -> SettlementOutcome:
    queue = bench.queue()
    link = bench.link(queue)
    bench.put(queue, x_opt_delivery_time=due)
    bench.take(link)
    return "after its delay" if 1000 * time.time() >= int(due) else "at once"


def commit(bench: Bench) -> SettlementOutcome:
    found = {}
    for end in ("commit", "abort", "leave"):
        source, target = bench.queue(), bench.queue()
        bench.put(source)
        Container(Transaction(bench.url(), source, target, end)).run()
        found[end] = (bench.fate(target, accepted=True), bench.fate(source, accepted=True))
    assert found["abort"] == ("gone", "back, counted"), "there is no copy, and the abort was counted"
    assert found["leave"][0] == "gone"
    assert found["leave"][1].startswith("back")
    return {("back", "gone"): "both or neither", ("back", "back"): "half of it"}[found["commit"]]


_IN_A_MINUTE = {proton.symbol("x-opt-delivery-time"): int(1000 * (time.time() + 60))}
TRIALS: dict[str, Callable[[Bench], SettlementOutcome]] = {
    v.ACCEPTED: settled(proton.Delivery.ACCEPTED),
    v.RELEASED: settled(proton.Delivery.RELEASED),
    v.MODIFIED: settled(proton.Delivery.MODIFIED),
    v.FAILED: settled(proton.Delivery.MODIFIED, failed=True),
    v.HERE: undeliverable_here,
    v.ANNOTATED: settled(proton.Delivery.MODIFIED, annotations=_IN_A_MINUTE),
    v.REJECTED: settled(proton.Delivery.REJECTED),
    v.REJECTED_BARE: rejected_bare,
    v.REJECTED_DEAD: rejected_dead,
    v.DETACHED: detached,
    v.LOST: lost,
    v.DELAY: delay,
    v.DELAY_TEXT: delay_text,
    v.COMMIT: commit,
}


def rows() -> Iterator[Any]:
    """Yield each verb that is called proved or probed, on each broker that its record names."""
    for record in records():
        series = ".".join(record.broker_version.split(".")[:2])
        for verb in record.verbs:
            if series in FIXTURES and verb.basis in (Trust.PROVED, Trust.PROBED):
                yield pytest.param(FIXTURES[series], verb, id=f"{series}-{verb.name}")


@pytest.mark.parametrize(("fixture", "verb"), list(rows()))
def test_a_verb_does_what_its_record_says(request: pytest.FixtureRequest, fixture: str, verb: VerbRecord) -> None:
    bench = Bench(request.getfixturevalue(fixture))  # one for all would be cut off while another one is waited for
    try:
        assert TRIALS[verb.name](bench) == verb.outcome
    finally:
        bench.close()


def test_what_was_not_tried_is_one_row_that_says_so() -> None:
    for version in ("2.30.0", "2.56.0", "3.0.0", "0", ""):
        (verb,) = capabilities(version).verbs
        assert (verb.outcome, verb.basis) == ("not tried", Trust.UNKNOWN)
