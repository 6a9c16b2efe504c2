# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries what the record says of RabbitMQ's verbs, with the bare driver on the real brokers."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from redeliver_mw.adapter.capabilities import SettlementOutcome, Trust, VerbRecord
from redeliver_pika import broker_verbs as v
from redeliver_pika import records
from redeliver_pika.capabilities import capabilities
from tests.brokers import Broker
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

FIXTURES = {"3.10": "rabbitmq310", "4.3": "rabbitmq43"}
PATIENCE = 5.0  # seconds for what comes
QUIET = 0.5  # seconds in which what is said not to come would have come
KINDS = ("classic", "quorum")
RETRY_MS = 400


class Met(NamedTuple):
    """Describes a delivery."""

    channel: BlockingChannel
    tag: int
    redelivered: bool
    count: int  # of earlier failures, as the broker tells


class Bench:
    """Holds one type of queue and a raw connection, and tells what is to be seen of a message."""

    def __init__(self, broker: Broker, kind: str) -> None:
        self._broker, self._kind = broker, kind
        self._connection = self.connect(broker.port)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._made: list[str] = []
        self.patience = PATIENCE

    def connect(self, port: int) -> pika.BlockingConnection:
        who = pika.PlainCredentials(self._broker.user, self._broker.password)
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, credentials=who, heartbeat=0))

    def queue(self, **arguments: Any) -> str:
        name = f"verbs.{uuid.uuid4().hex}"
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self._channel.queue_declare(name, durable=True, arguments={"x-queue-type": self._kind, **given})
        self._made.append(name)
        return name

    def retry_queue(self, back: str, **arguments: Any) -> str:
        safe = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
        more = safe if self._kind == "quorum" else {}
        return self.queue(dead_letter_exchange="", dead_letter_routing_key=back, **more, **arguments)

    def put(self, queue: str, body: bytes = b"m", expiration: str | None = None) -> None:
        properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
        self._channel.basic_publish("", queue, body, properties, mandatory=True)

    def met(self, queue: str, channel: BlockingChannel | None = None, seconds: float = PATIENCE) -> Met | None:
        """Return the next delivery, unsettled, or None if none comes within `seconds`."""
        channel = channel or self._channel
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            method, properties, _ = channel.basic_get(queue)
            if method is not None and properties is not None:
                count = (properties.headers or {}).get("x-delivery-count", 0)
                return Met(channel, method.delivery_tag, method.redelivered, int(count))
            time.sleep(0.01)
        return None

    def take(self, queue: str) -> Met:
        """Return the next delivery, on a channel of its own."""
        met = self.met(queue, self._connection.channel())
        assert met is not None
        assert (met.redelivered, met.count) == (False, 0)
        return met

    def fate(self, queue: str, dead: str = "", *, accepted: bool = False) -> SettlementOutcome:
        """Return what became of the one message that was in `queue`."""
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            if (met := self.met(queue, seconds=0.1)) is not None:
                return "back, counted" if met.count else "back, marked" if met.redelivered else "back"
            if dead and self.met(dead, seconds=0.1) is not None:
                return "dead-letter queue"
        return "gone" if accepted else "destroyed"

    def close(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError):
            channel = self._connection.channel()
            for name in self._made:
                channel.queue_delete(name)
            self._connection.close()

    # -- trials ----------------------------------------------------------------------------------------------

    def ack(self) -> SettlementOutcome:
        queue = self.queue()
        self.put(queue)
        met = self.take(queue)
        met.channel.basic_ack(met.tag)
        met.channel.close()
        return self.fate(queue, accepted=True)

    def nack(self) -> SettlementOutcome:
        queue = self.queue()
        self.put(queue)
        met = self.take(queue)
        met.channel.basic_nack(met.tag, requeue=True)
        return self.fate(queue)

    def nack_all(self) -> SettlementOutcome:
        """Return what becomes of two deliveries that are given back together: both have to come back alike."""
        queue, channel = self.queue(), self._connection.channel()
        for _ in range(2):
            self.put(queue)
        first, second = self.met(queue, channel), self.met(queue, channel)
        assert first is not None
        assert second is not None
        channel.basic_nack(second.tag, multiple=True, requeue=True)
        (outcome,) = {self.fate(queue), self.fate(queue)}
        return outcome

    def retry_nack(self) -> SettlementOutcome:
        return self._delayed(("all", "returned"), lambda met: met.channel.basic_nack(met.tag, requeue=True))

    def retry_reject(self) -> SettlementOutcome:
        return self._delayed(("all", "failed"), lambda met: met.channel.basic_reject(met.tag, requeue=True))

    def _delayed(self, types: tuple[str, ...], give_back: Callable[[Met], None]) -> SettlementOutcome:
        """Return when a message comes back in queues of these types, which have to agree.

        Queues of the other types give the message back at once.
        """
        found: dict[str, SettlementOutcome] = {}
        for kind in ("all", "returned", "failed"):
            queue = self.queue(delayed_retry_type=kind, delayed_retry_min=RETRY_MS, delayed_retry_max=4 * RETRY_MS)
            self.put(queue)
            met = self.take(queue)
            sent = time.monotonic()
            give_back(met)
            assert self.met(queue) is not None
            found[kind] = "after its delay" if time.monotonic() - sent >= RETRY_MS / 1000 else "at once"
        (outcome,) = {found[kind] for kind in types}
        assert {found[kind] for kind in found if kind not in types} == {"at once"}
        return outcome

    def reject(self) -> SettlementOutcome:
        queue = self.queue()
        self.put(queue)
        met = self.take(queue)
        met.channel.basic_reject(met.tag, requeue=True)
        return self.fate(queue)

    def discard(self) -> SettlementOutcome:
        dead = self.queue()
        return self._discard(self.queue(dead_letter_exchange="", dead_letter_routing_key=dead), dead)

    def discard_bare(self) -> SettlementOutcome:
        return self._discard(self.queue())

    def _discard(self, queue: str, dead: str = "") -> SettlementOutcome:
        """Return what becomes of a message after `nack` and after `reject`, which have to agree."""
        found: set[SettlementOutcome] = set()
        for word in ("basic_nack", "basic_reject"):
            self.put(queue)
            met = self.take(queue)
            getattr(met.channel, word)(met.tag, requeue=False)
            found.add(self.fate(queue, dead))
        (outcome,) = found
        return outcome

    def lost(self) -> SettlementOutcome:
        """Return what becomes of two deliveries, one of them merely fetched, when their channel is lost.

        Both come back alike, whether the connection is cut or the channel is closed.
        """
        found: set[SettlementOutcome] = set()
        for end in ("cut", "close"):
            queue = self.queue()
            for _ in range(2):
                self.put(queue)
            proxy = Proxy(self._broker.host, self._broker.port)
            connection = self.connect(proxy.port)
            channel = connection.channel()
            assert [self.met(queue, channel) is not None for _ in range(2)] == [True, True]
            if end == "cut":
                proxy.cut()
            else:
                channel.close()
            found |= {self.fate(queue), self.fate(queue)}
            with contextlib.suppress(pika.exceptions.AMQPError):
                connection.close()
            proxy.close()
        (outcome,) = found
        return outcome

    def ladder(self) -> SettlementOutcome:
        back = self.queue()
        rung = self.retry_queue(back, message_ttl=400)
        sent = time.monotonic()
        self.put(rung)
        assert self.met(back) is not None
        return "after its delay" if time.monotonic() - sent >= 0.4 else "at once"

    def expiration(self) -> SettlementOutcome:
        back = self.queue()
        rung = self.retry_queue(back)
        sent = time.monotonic()
        self.put(rung, b"long", expiration="1200")
        self.put(rung, b"short", expiration="200")
        assert self.met(back) is not None
        passed = time.monotonic() - sent
        return "behind longer ones" if passed >= 1.2 else "after its delay" if passed >= 0.2 else "at once"


TRIALS: dict[str, Callable[[Bench], SettlementOutcome]] = {
    v.ACK: Bench.ack,
    v.NACK: Bench.nack,
    v.NACK_ALL: Bench.nack_all,
    v.RETRY_NACK: Bench.retry_nack,
    v.RETRY_REJECT: Bench.retry_reject,
    v.REJECT: Bench.reject,
    v.DISCARD: Bench.discard,
    v.DISCARD_BARE: Bench.discard_bare,
    v.LOST: Bench.lost,
    v.LADDER: Bench.ladder,
    v.EXPIRATION: Bench.expiration,
}


def rows() -> Iterator[Any]:
    """Yield each verb that is called proved or probed, on each broker and type of queue that its record names."""
    for record in records():
        series = ".".join(record.broker_version.split(".")[:2])
        for verb in record.verbs:
            for kind in (verb.kind,) if verb.kind else KINDS:
                if verb.basis in (Trust.PROVED, Trust.PROBED):
                    yield pytest.param(FIXTURES[series], verb, kind, id=f"{series}-{kind}-{verb.name}")


@pytest.mark.parametrize(("fixture", "verb", "kind"), list(rows()))
def test_a_verb_does_what_its_record_says(
    request: pytest.FixtureRequest, fixture: str, verb: VerbRecord, kind: str
) -> None:
    bench = Bench(request.getfixturevalue(fixture), kind)
    bench.patience = QUIET if verb.outcome in ("gone", "destroyed") else PATIENCE
    try:
        assert TRIALS[verb.name](bench) == verb.outcome
    finally:
        bench.close()


def test_no_limit_ends_a_nack_on_4_3_and_a_reject_is_counted(rabbitmq43: Broker) -> None:
    bench = Bench(rabbitmq43, "quorum")
    dead = bench.queue()
    limit = {"delivery_limit": 3, "dead_letter_exchange": "", "dead_letter_routing_key": dead}
    nacked, rejected = bench.queue(**limit), bench.queue(**limit)
    bench.put(nacked)
    for _ in range(12):
        met = bench.met(nacked)
        assert met is not None
        met.channel.basic_nack(met.tag, requeue=True)
    assert bench.fate(nacked, dead) == "back, marked"
    bench.put(rejected)
    for _ in range(4):
        met = bench.met(rejected)
        assert met is not None
        met.channel.basic_reject(met.tag, requeue=True)
    assert bench.fate(rejected, dead) == "dead-letter queue"
    bench.close()


@pytest.mark.parametrize("multiple", [False, True], ids=["single", "multiple"])
def test_a_cumulative_nack_moves_a_limit_as_single_nacks_do(multiple: bool, rabbitmq: Broker) -> None:
    """On 3.10 the fourth ends both messages, on 4.3 none does."""
    bench = Bench(rabbitmq, "quorum")
    dead = bench.queue()
    queue = bench.queue(delivery_limit=3, dead_letter_exchange="", dead_letter_routing_key=dead)
    for _ in range(2):
        bench.put(queue)
    channel = bench.connect(rabbitmq.port).channel()
    for _ in range(4):
        tags = [met.tag for met in (bench.met(queue, channel), bench.met(queue, channel)) if met is not None]
        assert len(tags) == 2
        for tag in tags[-1:] if multiple else tags:
            channel.basic_nack(tag, multiple=multiple, requeue=True)
    ends: SettlementOutcome = "dead-letter queue" if rabbitmq.version.startswith("3.") else "back, marked"
    assert [bench.fate(queue, dead), bench.fate(queue, dead)] == [ends, ends]
    channel.connection.close()
    bench.close()


@pytest.mark.parametrize("kind", ["all", "returned", "failed"])
def test_a_cumulative_nack_is_delayed_by_the_queue_as_single_nacks_are(kind: str, rabbitmq43: Broker) -> None:
    bench = Bench(rabbitmq43, "quorum")
    late: dict[bool, list[bool]] = {}
    for multiple in (False, True):
        queue = bench.queue(delayed_retry_type=kind, delayed_retry_min=RETRY_MS, delayed_retry_max=4 * RETRY_MS)
        for _ in range(2):
            bench.put(queue)
        channel = bench.connect(rabbitmq43.port).channel()
        tags = [met.tag for met in (bench.met(queue, channel), bench.met(queue, channel)) if met is not None]
        sent = time.monotonic()
        for tag in tags[-1:] if multiple else tags:
            channel.basic_nack(tag, multiple=multiple, requeue=True)
        late[multiple] = []
        for _ in range(2):
            assert bench.met(queue) is not None
            late[multiple].append(time.monotonic() - sent >= RETRY_MS / 1000)
        channel.connection.close()
    assert late[False] == late[True] == [kind != "failed"] * 2
    bench.close()


def test_a_nack_is_delayed_by_the_minimum_times_the_counted_returns(rabbitmq43: Broker) -> None:
    bench = Bench(rabbitmq43, "quorum")
    queue = bench.queue(delayed_retry_type="returned", delayed_retry_min=RETRY_MS, delayed_retry_max=4 * RETRY_MS)
    bench.put(queue)
    for _ in range(3):
        met = bench.met(queue)
        assert met is not None
        met.channel.basic_reject(met.tag, requeue=True)
    met = bench.met(queue)
    assert met is not None
    assert met.count == 3
    sent = time.monotonic()
    met.channel.basic_nack(met.tag, requeue=True)
    assert bench.met(queue) is not None
    assert time.monotonic() - sent >= 3 * RETRY_MS / 1000
    bench.close()


def test_what_was_not_tried_is_one_row_that_says_so() -> None:
    for version in ("3.9.29", "3.12.1", "4.1.0", "4.2.9", "5.0.0", "0"):
        (verb,) = capabilities(version, 131072, exact_headers=True).verbs
        assert (verb.outcome, verb.basis) == ("not tried", Trust.UNKNOWN)


def test_the_record_names_no_verb_twice() -> None:
    for record in records():
        named = [(verb.name, verb.kind) for verb in record.verbs]
        assert len(named) == len(set(named))
