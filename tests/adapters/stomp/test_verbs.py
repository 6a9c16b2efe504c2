# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tries what the record says of STOMP's frames on ActiveMQ, over a plain socket on the real brokers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from proton import Message

from redeliver_mw.adapter.capabilities import SettlementOutcome, Trust, VerbRecord
from redeliver_stomp import broker_verbs as v
from redeliver_stomp import records
from redeliver_stomp.capabilities import capabilities
from tests.adapters.stomp.plain import Plain, Seen
from tests.brokers import Broker
from tests.brokers._amqp10 import plain_connection
from tests.contract.stomp_world import running

pytestmark = pytest.mark.broker

FIXTURES = {"5.18": "activemq518", "6.3": "activemq63"}
PATIENCE = 5.0  # seconds for what comes
DEAD = "ActiveMQ.DLQ"


class Bench:
    """Holds the queues of one trial, and tells what is to be seen of a message in them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._witness = Plain(broker)
        self._open: list[Plain] = []

    def connect(self) -> Plain:
        self._open.append(Plain(self.broker))
        return self._open[-1]

    def close(self) -> None:
        for plain in (self._witness, *self._open):
            plain.close()

    def put(self, queue: str, body: bytes = b"m", **headers: object) -> None:
        assert self._witness.send(f"/queue/{queue}", body, headers) == ""

    def subscribe(self, queue: str, ack: str = "client-individual") -> Plain:
        """Subscribe to a queue on a connection of its own, and return that connection."""
        plain = self.connect()
        assert plain.say("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": "s", "ack": ack}) == ""
        return plain

    def take(self, plain: Plain, *, first: bool = True) -> Seen:
        frame = plain.wait(PATIENCE)
        assert frame is not None
        assert frame.command == "MESSAGE"
        assert not first or "redelivered" not in frame.headers
        return frame

    def seen(self, queue: str, body: bytes = b"m") -> Mapping[str, str] | None:
        """Return the headers of a message that lies in a queue, without taking it, or None if it is not there."""
        looking = Plain(self.broker)
        looking.say("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": "b", "browser": "true", "ack": "auto"})
        while (frame := looking.wait(PATIENCE)) is not None and frame.headers.get("browser") != "end":
            if frame.body == body:
                looking.close()
                return frame.headers
        looking.close()
        return None

    def fate(self, queue: str, body: bytes = b"m", *, accepted: bool = False) -> SettlementOutcome:
        """Return what became of a message that was in `queue`, once nobody has it any more.

        A browser sees the message as well while the broker still believes a consumer to have it: its mark is waited
        for.
        """
        end = time.monotonic() + PATIENCE
        while (headers := self.seen(queue, body)) is not None:
            if headers.get("redelivered") == "true":
                return "back, marked"
            if time.monotonic() > end:
                return "back"
        if self.seen(DEAD, body) is not None:
            return "dead-letter queue"
        return "gone" if accepted else "destroyed"


def new(name: str = "verbs") -> str:
    return f"{name}.{uuid.uuid4().hex}"


def ack(bench: Bench) -> SettlementOutcome:
    queue = new()
    bench.put(queue, b"one")
    bench.put(queue, b"two")
    plain = bench.subscribe(queue)
    bench.take(plain)
    assert plain.say("ACK", {"id": bench.take(plain).headers["ack"]}) == ""
    plain.close()
    assert bench.fate(queue, b"one") == "back, marked"
    return bench.fate(queue, b"two", accepted=True)


def ack_client(bench: Bench) -> SettlementOutcome:
    queue = new()
    for body in (b"one", b"two", b"three"):
        bench.put(queue, body)
    plain = bench.subscribe(queue, "client")
    bench.take(plain)
    assert plain.say("ACK", {"id": bench.take(plain).headers["ack"]}) == ""
    plain.close()
    assert bench.fate(queue, b"three") == "back, marked"
    assert bench.fate(queue, b"two", accepted=True) == "gone"
    return "gone, and all before it" if bench.fate(queue, b"one", accepted=True) == "gone" else "gone"


def auto(bench: Bench) -> SettlementOutcome:
    queue = new()
    bench.put(queue)
    plain = bench.subscribe(queue, "auto")
    bench.take(plain)
    plain.close()
    return bench.fate(queue)


def nack(bench: Bench, **headers: object) -> SettlementOutcome:
    queue, body = new(), new().encode()
    bench.put(queue, body, **headers)
    plain = bench.subscribe(queue)
    assert plain.say("NACK", {"id": bench.take(plain).headers["ack"]}) == ""
    plain.close()
    return bench.fate(queue, body)


def nack_dead(bench: Bench) -> SettlementOutcome:
    queue, body = new(), new().encode()
    bench.put(queue, body)
    plain = bench.subscribe(queue)
    assert plain.say("NACK", {"id": bench.take(plain).headers["ack"]}) == ""
    dead = bench.subscribe(DEAD)
    while (letter := bench.take(dead, first=False)).body != body:
        pass
    assert dead.say("NACK", {"id": letter.headers["ack"]}) == ""
    for one in (plain, dead):
        one.close()
    return bench.fate(queue, body)


def lost(bench: Bench) -> SettlementOutcome:
    """Return what becomes of two deliveries, one of them merely fetched: both come back alike."""
    queue = new()
    for body in (b"one", b"two"):
        bench.put(queue, body)
    plain = bench.subscribe(queue)
    for _ in range(2):
        bench.take(plain)
    plain.close()
    (outcome,) = {bench.fate(queue, body) for body in (b"one", b"two")}
    return outcome


def late_ack(bench: Bench) -> SettlementOutcome:
    queue = new()
    bench.put(queue)
    plain = bench.subscribe(queue)
    frame = bench.take(plain)
    assert plain.say("UNSUBSCRIBE", {"id": "s"}) == ""
    assert plain.say("ACK", {"id": frame.headers["ack"]}) == ""
    return bench.fate(queue)


def foreign_ack(bench: Bench) -> SettlementOutcome:
    b = bench.broker
    queue = new()
    connection = plain_connection(f"amqp://{b.user}:{b.password}@{b.host}:{b.amqp_port}", timeout=10)
    connection.create_sender(f"queue://{queue}").send(Message(id="mine", body=b"m", durable=True))
    connection.close()
    plain = bench.subscribe(queue)
    frame = bench.take(plain)
    with pytest.raises(ConnectionError):
        plain.say("ACK", {"id": frame.headers["ack"]})
    return bench.fate(queue, frame.body)


def delay(bench: Bench) -> SettlementOutcome:
    queue = new()
    plain = bench.subscribe(queue)
    sent = time.monotonic()
    bench.put(queue, AMQ_SCHEDULED_DELAY=1000)
    bench.take(plain)
    passed = time.monotonic() - sent
    assert passed < 1.0 + 0.6 + 1.0, "later than is said, and a second for a busy machine"
    return "after its delay" if passed >= 1.0 else "at once"


def transaction(bench: Bench, end: str, *, wrong: bool = False) -> tuple[bool, bool]:
    """Return whether the copy is there after a transaction, and whether the original is settled."""
    queue, copies = new(), new()
    bench.put(queue)
    plain = bench.subscribe(queue)
    frame = bench.take(plain)
    assert plain.say("BEGIN", {"transaction": "t"}) == ""
    assert plain.send(f"/queue/{copies}", b"m", {"transaction": "t"}) == ""
    said = plain.say("ACK", {"id": "none" if wrong else frame.headers["ack"], "transaction": "t"})
    assert bool(said) == wrong
    if end:
        assert plain.say(end, {"transaction": "t"}) == ""
    plain.close()
    return bench.seen(copies) is not None, bench.seen(queue) is None


def commit(bench: Bench) -> SettlementOutcome:
    undone = {transaction(bench, end) for end in ("ABORT", "")}
    assert undone == {(False, False)}
    return {(True, True): "both or neither", (True, False): "half of it"}[transaction(bench, "COMMIT")]


def commit_error(bench: Bench) -> SettlementOutcome:
    return {(True, False): "half of it", (False, False): "nothing happens"}[transaction(bench, "COMMIT", wrong=True)]


TRIALS: dict[str, Callable[[Bench], SettlementOutcome]] = {
    v.ACK: ack,
    v.ACK_CLIENT: ack_client,
    v.AUTO: auto,
    v.NACK: nack,
    v.NACK_TRANSIENT: lambda bench: nack(bench, persistent="false"),
    v.NACK_DEAD: nack_dead,
    v.LOST: lost,
    v.LATE_ACK: late_ack,
    v.FOREIGN_ACK: foreign_ack,
    v.DELAY: delay,
    v.DELAY_OFF: delay,
    v.COMMIT: commit,
    v.COMMIT_ERROR: commit_error,
}


def rows(*, scheduler: bool) -> Iterator[Any]:
    """Yield each verb that is called proved or probed, on each broker that its record names."""
    for record in records():
        series = ".".join(record.broker_version.split(".")[:2])
        for verb in record.verbs:
            if verb.basis in (Trust.PROVED, Trust.PROBED) and (verb.name != v.DELAY_OFF) == scheduler:
                yield pytest.param(series, verb, id=f"{series}-{verb.name}")


def outcome_of(verb: VerbRecord, broker: Broker) -> SettlementOutcome:
    bench = Bench(broker)
    try:
        return TRIALS[verb.name](bench)
    finally:
        bench.close()


@pytest.mark.parametrize(("series", "verb"), list(rows(scheduler=True)))
def test_a_verb_does_what_its_record_says(request: pytest.FixtureRequest, series: str, verb: VerbRecord) -> None:
    assert outcome_of(verb, request.getfixturevalue(FIXTURES[series])) == verb.outcome


@pytest.mark.parametrize(("series", "verb"), list(rows(scheduler=False)))
def test_a_verb_does_without_the_scheduler_what_its_record_says(series: str, verb: VerbRecord) -> None:
    with running(series, scheduler=False) as broker:
        assert outcome_of(verb, broker) == verb.outcome


def test_what_was_not_tried_is_one_row_that_says_so() -> None:
    for version in ("5.17.2", "5.19.0", "6.2.0", "7.0.0", ""):
        (verb,) = capabilities(version, scheduler=True).verbs
        assert (verb.outcome, verb.basis) == ("not tried", Trust.UNKNOWN)
