# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries what the record says of AMQP 1.0's outcomes on RabbitMQ, with the bare driver on the real broker."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import proton
import pytest

from redeliver_mw.adapter.capabilities import SettlementOutcome, Trust, VerbRecord
from redeliver_proton.brokers.rabbitmq import verbs as v
from redeliver_proton.brokers.rabbitmq.capabilities import capabilities
from redeliver_proton.rabbitmq import records
from tests.adapters.proton.test_verbs import settle
from tests.brokers import Broker
from tests.brokers._amqp10 import plain_connection
from tests.contract.rabbit_proton_world import RabbitWitness, path
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

FIXTURES = {"4.3": "rabbitmq43"}
PATIENCE = 30.0  # seconds for what comes
QUIET = 0.2  # seconds in which a message comes that lies there
DELAY = 1.0
D = proton.Delivery


class Bench:
    """Holds the queues of one trial, and tells what is to be seen of a message in them."""

    def __init__(self, broker: Broker, kind: str) -> None:
        self.broker, self._kind = broker, kind
        self.witness = RabbitWitness(broker)
        self._open: list[Any] = []
        self.consumer = self.connect()

    def connect(self, port: int | None = None) -> Any:
        b = self.broker
        url = f"amqp://{b.user}:{b.password}@{b.host}:{port or b.port}"
        self._open.append(plain_connection(url, timeout=PATIENCE, allowed_mechs="PLAIN"))
        return self._open[-1]

    def close(self) -> None:
        for connection in self._open:
            with contextlib.suppress(Exception):  # some were cut on purpose
                connection.close()
        self.witness.close()

    def queue(self, dead: str = "") -> str:
        name = f"verbs.{uuid.uuid4().hex}"
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead} if dead else {}
        self.witness.declare(name, {"x-queue-type": self._kind, **letters})
        return name

    def put(self, queue: str, *, ttl: float = 0.0, due: float | None = None) -> None:
        message = proton.Message(body=b"m", ttl=ttl)
        if due is not None:
            message.annotations = {proton.symbol("x-opt-delivery-time"): proton.ulong(int(1000 * due))}
        self.witness.send(path(queue), message)

    def link(self, queue: str, connection: Any = None, credit: int = 1) -> Any:
        return (connection or self.consumer).create_receiver(path(queue), name=uuid.uuid4().hex, credit=credit)

    def met(self, queue: str, seconds: float = QUIET) -> proton.Message | None:
        """Remove the first message of a queue, and return it, or None if none comes within `seconds`."""
        link = self.link(queue, self.witness.connection)
        try:
            message = link.receive(timeout=seconds)
        except proton.Timeout:
            return None
        link.accept()
        link.close()
        return message

    def take(self, queue: str) -> tuple[Any, proton.Delivery]:
        """Return the link, without credit for more, and the one delivery on it, which must be a first one."""
        link = self.link(queue, credit=0)
        message = link.receive(timeout=PATIENCE)
        assert (message.delivery_count, message.first_acquirer) == (0, True)
        return link, link.fetcher.unsettled.pop()

    def fate(self, queue: str, dead: str = "", *, accepted: bool = False) -> SettlementOutcome:
        """Return what became of the one message that was in `queue`."""
        if (message := self.met(queue)) is not None:
            return kind_of_return(message)
        if dead and self.met(dead) is not None:
            return "dead-letter queue"
        return "gone" if accepted else "destroyed"


def kind_of_return(message: proton.Message) -> SettlementOutcome:
    if message.delivery_count:
        return "back, counted"
    return "back" if message.first_acquirer else "back, marked"


def settled(state: Any, **local: Any) -> Callable[[Bench], SettlementOutcome]:
    """Return the trial of one outcome."""

    def trial(bench: Bench) -> SettlementOutcome:
        dead = bench.queue()
        queue = bench.queue(dead)
        bench.put(queue)
        link, delivery = bench.take(queue)
        settle(link, delivery, state, **local)
        link.close()
        return bench.fate(queue, dead, accepted=state == D.ACCEPTED)

    return trial


def rejected_bare(bench: Bench) -> SettlementOutcome:
    queue = bench.queue()
    bench.put(queue)
    settle(*bench.take(queue), D.REJECTED)
    return bench.fate(queue)


def later(write: Callable[[int], Any], ttl: float = 0.0) -> Callable[[Bench], SettlementOutcome]:
    """Return the trial of a message that is given back with a time: whether it comes at that time, or before."""

    def trial(bench: Bench) -> SettlementOutcome:
        queue = bench.queue()
        bench.put(queue, ttl=ttl)
        link, delivery = bench.take(queue)
        due = int(1000 * (time.time() + DELAY))
        settle(link, delivery, D.MODIFIED, annotations={proton.symbol("x-opt-delivery-time"): write(due)})
        link.close()
        message = bench.met(queue, DELAY + 2.0)
        if message is None:
            return "destroyed"
        assert kind_of_return(message) == "back, marked", "it counts as failed"
        return "after its delay" if 1000 * time.time() >= due else "at once"

    return trial


def delay(bench: Bench) -> SettlementOutcome:
    queue, due = bench.queue(), time.time() + 60
    bench.put(queue, due=due)
    bench.take(queue)
    return "after its delay" if time.time() >= due else "at once"


def ends(bench: Bench, end: Callable[[Any, Any], None], port: int | None = None) -> set[SettlementOutcome]:
    """Return what becomes of each of three deliveries, two of them merely fetched, when the end comes."""
    queue = bench.queue()
    for _ in range(3):
        bench.put(queue)
    connection = bench.connect(port)
    link = bench.link(queue, connection, credit=3)
    link.receive(timeout=PATIENCE)
    connection.wait(lambda: link.link.queued + len(link.fetcher.incoming) >= 2, timeout=PATIENCE)
    end(connection, link)
    connection.timeout = 0.1  # it is asked to close in the end, and one that was cut never answers
    found = [bench.met(queue, PATIENCE) for _ in range(3)]
    return {kind_of_return(message) if message is not None else "destroyed" for message in found}


def detached(bench: Bench) -> SettlementOutcome:
    (outcome,) = ends(bench, lambda connection, link: link.close())
    return outcome


def lost(bench: Bench) -> SettlementOutcome:
    def end_session(connection: Any, link: Any) -> None:
        session = link.link.session
        session.close()
        connection.wait(lambda: session.state & proton.Endpoint.REMOTE_CLOSED, timeout=PATIENCE)

    proxy = Proxy(bench.broker.host, bench.broker.port)
    found = ends(bench, lambda connection, link: proxy.cut(), proxy.port)
    proxy.close()
    found |= ends(bench, lambda connection, link: connection.close())
    found |= ends(bench, end_session)
    (outcome,) = found
    return outcome


TRIALS: dict[str, Callable[[Bench], SettlementOutcome]] = {
    v.ACCEPTED: settled(D.ACCEPTED),
    v.RELEASED: settled(D.RELEASED),
    v.MODIFIED: settled(D.MODIFIED),
    v.FAILED: settled(D.MODIFIED, failed=True),
    v.HERE: settled(D.MODIFIED, undeliverable=True),
    v.REJECTED: settled(D.REJECTED),
    v.REJECTED_BARE: rejected_bare,
    v.LATER: later(proton.ulong),
    v.LATER_TEXT: later(str),
    v.LATER_TTL: later(proton.ulong, ttl=0.3),
    v.DETACHED: detached,
    v.LOST: lost,
    v.DELAY: delay,
}


def rows() -> Iterator[Any]:
    """Yield each verb that is called proved or probed, on each broker and type of queue that its record names."""
    for record in records():
        series = ".".join(record.broker_version.split(".")[:2])
        for verb in record.verbs:
            if series in FIXTURES and verb.basis in (Trust.PROVED, Trust.PROBED):
                for kind in (verb.kind,) if verb.kind else ("classic", "quorum"):
                    yield pytest.param(FIXTURES[series], kind, verb, id=f"{series}-{kind}-{verb.name}")


@pytest.mark.parametrize(("fixture", "kind", "verb"), list(rows()))
def test_a_verb_does_what_its_record_says(
    request: pytest.FixtureRequest, fixture: str, kind: str, verb: VerbRecord
) -> None:
    bench = Bench(request.getfixturevalue(fixture), kind)
    try:
        assert TRIALS[verb.name](bench) == verb.outcome
    finally:
        bench.close()


def test_no_number_of_postponements_reaches_the_queues_own_limit(rabbitmq43: Broker) -> None:
    bench = Bench(rabbitmq43, "quorum")
    queue = f"verbs.{uuid.uuid4().hex}"
    bench.witness.declare(queue, {"x-queue-type": "quorum", "x-delivery-limit": 2})
    bench.put(queue)
    link = bench.link(queue)
    for _ in range(10):
        link.receive(timeout=PATIENCE)
        due = proton.ulong(int(1000 * time.time()) + 20)
        settle(link, link.fetcher.unsettled.pop(), D.MODIFIED, annotations={proton.symbol("x-opt-delivery-time"): due})
    link.close()
    message = bench.met(queue, PATIENCE)
    bench.close()
    assert message is not None
    assert message.delivery_count == 0


def test_what_was_not_tried_is_one_row_that_says_so() -> None:
    for version in ("4.0.5", "4.2.1", "4.4.0", "5.0.0"):
        (verb,) = capabilities(version).verbs
        assert (verb.outcome, verb.basis) == ("not tried", Trust.UNKNOWN)
