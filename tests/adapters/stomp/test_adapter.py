# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what the contract cannot ask of every broker.

That is topics, transactions, the scheduler, heart-beats and silent peers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redeliver_mw import App, Delivery, Destination, connect
from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.adapter.protocol import Subscription
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import BrokerError, BrokerUnavailable, ConfigError, RedeliverError
from redeliver_mw.message import Outgoing
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract.handlers import Handler, fail, fail_first
from redeliver_stomp import StompAdapter
from redeliver_stomp import connection as connecting
from tests.adapters.stomp.plain import Plain
from tests.contract.stomp_world import ContractBroker, StompWorld

pytestmark = pytest.mark.broker


class Ear:
    """Remembers what it is told, as a sink."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.capabilities: Capabilities | None = None
        self.deliveries: list[Delivery] = []
        self.generations: list[int] = []
        self.over: list[int] = []
        self.errors: list[RedeliverError] = []

    def _tell(self, act: Callable[[], None]) -> None:
        with self.changed:
            act()
            self.changed.notify_all()

    def connected(self, capabilities: Capabilities, /) -> None:
        self._tell(lambda: setattr(self, "capabilities", capabilities))

    def ready(self, source: Destination, generation: int, /) -> None:
        self._tell(lambda: self.generations.append(generation))

    def arrived(self, batch: Any, /) -> None:
        self._tell(lambda: self.deliveries.extend(batch))

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._tell(lambda: self.over.append(generation))

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        self._tell(lambda: self.errors.append(error))

    def wait(self, true: Callable[[], object], seconds: float = 15.0) -> None:
        with self.changed:
            assert self.changed.wait_for(true, seconds)


@contextlib.contextmanager
def adapter_on(url: str, queue: str, prefetch: int = 100) -> Iterator[tuple[StompAdapter, Ear]]:
    adapter, ear = StompAdapter(parse_url(url)), Ear()
    adapter.start(ear)
    ear.wait(lambda: ear.capabilities)
    adapter.subscribe(Subscription(source=Destination(queue), prefetch=prefetch))
    ear.wait(lambda: ear.generations)
    yield adapter, ear
    adapter.close(5.0)


class Verdicts:
    """Collects answers as they come."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []
        self._came = threading.Semaphore(0)

    def __call__(self, verdict: str, why: str) -> None:
        self.given.append((verdict, why))
        self._came.release()

    def wait(self, count: int = 1, seconds: float = 15.0) -> list[str]:
        for _ in range(count):
            assert self._came.acquire(timeout=seconds), self.given
        return [verdict for verdict, _ in self.given]


def copy_to(queue: str, of: Delivery) -> tuple[Outgoing, float]:
    return Outgoing(Destination(queue), of.body, {}, of.properties, "c1", of), 0.0


# -- transactions ------------------------------------------------------------------------------------------


def test_a_move_sends_its_copies_and_takes_the_original(world: StompWorld) -> None:
    queue, left, right = (world.new_queue() for _ in range(3))
    world.send(queue, b"one")
    with adapter_on(world.url, queue) as (adapter, ear):
        ear.wait(lambda: ear.deliveries)
        answers = Verdicts()
        (one,) = ear.deliveries
        adapter.move(one, [copy_to(left, one), copy_to(right, one)], answers)
        assert answers.wait() == ["ok"]
        adapter.move(one, [copy_to(left, one)], answers)  # it is settled
        assert answers.wait() == ["ok", "abandoned"]
        assert (world.depth(left), world.depth(right)) == (1, 1)
    assert world.depth(queue) == 0


def test_of_moves_that_share_a_transaction_only_the_refused_one_fails(world: StompWorld) -> None:
    queue, good, full = world.new_queue(), world.new_queue(), world.new_queue(refusing=True)
    for n in range(4):
        world.send(queue, b"%d" % n)
    with adapter_on(world.url, queue) as (adapter, ear):
        ear.wait(lambda: len(ear.deliveries) == 4)
        answers = [Verdicts() for _ in range(4)]
        for n, delivery in enumerate(list(ear.deliveries)):
            adapter.move(delivery, [copy_to(full if n == 2 else good, delivery)], answers[n])
        assert [told.wait() for told in answers] == [["ok"], ["ok"], ["refused"], ["ok"]]
        assert "Limit" in answers[2].given[0][1]
        assert sorted(raw.body for raw in world.take_all(good)) == [b"0", b"1", b"3"]
        again = Verdicts()  # after the abort it is unsettled and ours
        adapter.move(ear.deliveries[2], [copy_to(good, ear.deliveries[2])], again)
        assert again.wait() == ["ok"]
        assert len(ear.generations) == 1
    assert (world.depth(queue), world.depth(good)) == (0, 1)


def test_a_refused_copy_among_others_of_one_message_sends_none_of_them(world: StompWorld) -> None:
    queue, good, full = world.new_queue(), world.new_queue(), world.new_queue(refusing=True)
    world.send(queue, b"one")
    with adapter_on(world.url, queue) as (adapter, ear):
        ear.wait(lambda: ear.deliveries)
        answers = Verdicts()
        adapter.move(ear.deliveries[0], [copy_to(good, ear.deliveries[0]), copy_to(full, ear.deliveries[0])], answers)
        assert answers.wait() == ["refused"]
        adapter.settle([(ear.deliveries[0], "accepted")], written=lambda: answers("ok", ""))
        assert answers.wait() == ["refused", "ok"]
    assert (world.depth(queue), world.depth(good)) == (0, 0)


def test_silence_in_a_transaction_closes_the_connection_and_nothing_of_it_happened(world: StompWorld) -> None:
    queue, good = world.new_queue(), world.new_queue()
    world.send(queue, b"one")
    with adapter_on(world.url, queue) as (adapter, ear):
        adapter._publisher._patience = 0.5
        ear.wait(lambda: ear.deliveries)
        answers = Verdicts()
        world._proxy.stall("up", "(consume)")
        adapter.move(ear.deliveries[0], [copy_to(good, ear.deliveries[0])], answers)
        assert answers.wait() == ["abandoned"]
        assert ear.over == ear.generations[:1]
        world.unsilence()
        ear.wait(lambda: len(ear.deliveries) == 2)
        assert ear.deliveries[1].redelivered
        assert world.depth(good) == 0


def test_a_delayed_copy_is_not_part_of_a_transaction(world: StompWorld) -> None:
    queue = world.new_queue()
    world.send(queue, b"one")
    with adapter_on(world.url, queue) as (adapter, ear):
        ear.wait(lambda: ear.deliveries)
        answers = Verdicts()
        adapter.move(ear.deliveries[0], [(copy_to(queue, ear.deliveries[0])[0], 1.0)], answers)
        assert answers.wait() == ["refused"]


def test_a_hundred_moves_at_once_all_arrive(world: StompWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    for n in range(120):
        world.send(queue, b"%d" % n)
    with adapter_on(world.url, queue, 200) as (adapter, ear):
        ear.wait(lambda: len(ear.deliveries) == 120)
        answers = Verdicts()
        for delivery in ear.deliveries:
            adapter.move(delivery, [copy_to(dead, delivery)], answers)
        assert answers.wait(120) == ["ok"] * 120
    assert (world.depth(queue), world.depth(dead)) == (0, 120)


# -- publishing --------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_by_name_and_the_link_stays(world: StompWorld) -> None:
    full, good = world.new_queue(refusing=True), world.new_queue()
    with adapter_on(world.url, good) as (adapter, _):
        answers = Verdicts()
        for target in (full, good):
            adapter.publish(Outgoing(Destination(target), b"x", {}), answers)
        assert answers.wait(2) == ["refused", "ok"]
        assert "Limit" in answers.given[0][1]


@pytest.mark.parametrize("name", ["a.*", "a,b", "orders.>"])
def test_a_target_that_is_no_queue_is_refused_before_anything_is_sent(world: StompWorld, name: str) -> None:
    queue = world.new_queue()
    with adapter_on(world.url, queue) as (adapter, _):
        answers = Verdicts()
        adapter.check(Destination(name), answers, declare=True)
        adapter.publish(Outgoing(Destination(name), b"x", {}), answers)
        adapter.check(Destination(queue), answers, declare=False)
        assert answers.wait(3) == ["refused", "refused", "ok"]
    with pytest.raises(ConfigError), connect(world.url) as session:
        session.receive(name, 1.0)


def test_a_text_message_is_copied_as_a_text_message(world: StompWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.consume(queue, fail, RedeliveryPolicy(1, 0.0, f"queue:{dead}"))
    world._open().send(f"/queue/{queue}", "grüße".encode(), {"content-length": None})
    assert world.wait_until(lambda: world.depth(dead) == 1)
    plain = world._open()
    plain.say("SUBSCRIBE", {"destination": f"/queue/{dead}", "id": "1", "ack": "auto"})
    letter = plain.wait(5.0)
    assert letter is not None
    assert (letter.body.decode(), "content-length" in letter.headers) == ("grüße", False)


def test_a_reply_to_a_temporary_queue_still_works_from_a_copy(world: StompWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.consume(queue, fail, RedeliveryPolicy(1, 0.0, f"queue:{dead}"))
    asker = Plain(world.broker)
    asker.say("SUBSCRIBE", {"destination": "/temp-queue/answers", "id": "1", "ack": "auto"})
    asker.send(f"/queue/{queue}", b"?", {"reply-to": "/temp-queue/answers"})
    assert world.wait_until(lambda: world.depth(dead) == 1)
    plain = world._open()
    plain.say("SUBSCRIBE", {"destination": f"/queue/{dead}", "id": "1", "ack": "auto"})
    letter = plain.wait(5.0)
    assert letter is not None
    assert plain.send(letter.headers["reply-to"], b"!") == ""
    answer = asker.wait(5.0)
    asker.close()
    assert answer is not None
    assert answer.body == b"!"


def test_headers_of_a_producer_that_look_like_the_brokers_do_no_harm(world: StompWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail, RedeliveryPolicy(2, 0.05, f"queue:{dead}"))
    spoof = {
        "ack": "mine",
        "id": "7",
        "message-id": "m",
        "subscription": "other",
        "redelivered": "true",
        "browser": "end",
        "redeliver_failures": "5",
        "redeliver_failures_for": "another",
        "_AMQ_DUPL_ID": "d",
        "scheduledJobId": "j",
        "JMSXDeliveryCount": "9",
        "dlqDeliveryFailureCause": "mine",
        "original-destination": "/queue/mine",
    }
    for n in range(3):
        world.send(queue, b"%d" % n, spoof)
    assert world.wait_until(lambda: world.depth(dead) == 3)
    assert sorted(consumer.counts) == [1, 1, 1, 2, 2, 2]
    consumer.stop()
    assert world.depth(queue) == 0
    letter = world.take_all(dead)[0]
    assert letter.headers["original-destination"] == f"/queue/{queue}"
    assert not {"_AMQ_DUPL_ID", "scheduledJobId", "JMSXDeliveryCount", "subscription"} & letter.headers.keys()


# -- the scheduler -----------------------------------------------------------------------------------------


def test_copies_come_after_their_delay_and_not_much_later(world: StompWorld) -> None:
    queue = world.new_queue()
    with adapter_on(world.url, queue) as (adapter, ear):
        answers, sent = Verdicts(), time.monotonic()
        delays = [1.0, 1.1, 1.3, 1.7]
        for delay in delays:
            adapter.publish(Outgoing(Destination(queue), str(delay).encode(), {}), answers, after=delay)
        assert answers.wait(4) == ["ok"] * 4
        for count in range(1, 5):
            ear.wait(lambda count=count: len(ear.deliveries) >= count)
            late = time.monotonic() - sent - float(ear.deliveries[count - 1].body)
            assert 0.0 <= late < 0.5 + 1.5  # a tick, and a busy machine
        assert all("scheduledJobId" in delivery.headers for delivery in ear.deliveries)


def test_a_scheduler_that_is_off_is_found_out_at_start(
    unscheduled: ContractBroker, caplog: pytest.LogCaptureFixture
) -> None:
    plain = Plain(unscheduled)
    with adapter_on(unscheduled.url, "off") as (adapter, ear):
        assert adapter.capabilities.schedule is None
        plain.send("/queue/off", b"1", {"AMQ_SCHEDULED_DELAY": "60000"})
        plain.send("/queue/off", b"2", {"AMQ_SCHEDULED_DELAY": "60000"})
        ear.wait(lambda: len(ear.deliveries) == 2)
    assert len([r for r in caplog.records if "schedulerSupport" in r.getMessage()]) == 1
    app = App(unscheduled.url, policy=RedeliveryPolicy(3, 60.0))
    app.handler("off")(lambda delivery: None)
    with pytest.raises(RedeliverError, match="60"):
        app.start()
    plain.close()


# -- topics ------------------------------------------------------------------------------------------------


def test_a_retry_reaches_only_the_subscription_that_failed(world: StompWorld) -> None:
    topic, dead = world.new_name(), world.new_queue()
    handlers = {"audit": Handler(world.now, fail_first(2)), "billing": Handler(world.now)}
    app = world.app()
    for name, handler in handlers.items():
        app.handler(f"topic:{topic}", subscription=name, policy=RedeliveryPolicy(5, 0.1, f"queue:{dead}"))(handler)
    world.started(app)
    world._open().send(f"/topic/{topic}", b"tick", {"h": "v"})
    assert world.wait_until(lambda: all(handler.done[b"tick"] == 1 for handler in handlers.values()))
    world.advance(0.3)
    assert [run.count for run in handlers["audit"].runs] == [1, 2, 3]
    assert [run.count for run in handlers["billing"].runs] == [1]


def test_a_copy_for_a_subscription_comes_to_it_alone(world: StompWorld) -> None:
    """Copies leave by the broker's scheduler and by a stop: what is held leaves to the private queue."""
    topic, dead = world.new_name(), world.new_queue()
    policy = RedeliveryPolicy(5, 2.0, f"queue:{dead}")
    audit, billing = Handler(world.now, fail_first(1)), Handler(world.now)
    first = world.app(delay="schedule")
    first.handler(f"topic:{topic}", subscription="audit", policy=policy)(audit)
    first.handler(f"topic:{topic}", subscription="billing", policy=policy)(billing)
    world.started(first)
    world._open().send(f"/topic/{topic}", b"tick")
    assert world.wait_until(lambda: audit.done[b"tick"] == 1)
    assert [run.count for run in audit.runs] == [1, 2]
    assert [run.count for run in billing.runs] == [1]
    first.stop(5.0)


def test_a_durable_subscription_keeps_what_comes_while_nobody_is_there(world: StompWorld) -> None:
    topic, handler = world.new_name(), Handler(world.now)

    def consumer() -> App:
        app = world.app()
        app.handler(f"topic:{topic}", subscription="audit")(handler)
        return world.started(app)

    consumer().stop(2.0)
    world._open().send(f"/topic/{topic}", b"meanwhile")
    consumer()
    assert world.wait_until(lambda: handler.done[b"meanwhile"] == 1)
    assert len(handler.runs) == 1


def test_a_dead_letter_of_a_subscription_goes_back_to_it_alone(world: StompWorld) -> None:
    topic, dead = world.new_name(), world.new_queue()
    app, audit = world.app(), Handler(world.now, fail)
    app.handler(f"topic:{topic}", subscription="audit", policy=RedeliveryPolicy(1, 0.0, f"queue:{dead}"))(audit)
    world.started(app)
    world._open().send(f"/topic/{topic}", b"tick")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.take_all(dead)
    assert letter.headers["original-destination"] == f"/queue/redeliver.retry.{topic}.audit"
    assert letter.headers["redeliver_original_kind"] == "topic"
    assert world._open().send(letter.headers["original-destination"], b"back") == ""
    assert world.wait_until(lambda: len(audit.of(b"back")) == 1)


def test_the_error_of_a_second_consumer_of_a_durable_subscription_names_the_first(world: StompWorld) -> None:
    topic = world.new_name()
    app, other = world.app(), world.app()
    for one in (app, other):
        one.handler(f"topic:{topic}", subscription="audit")(lambda delivery: None)
    world.started(app)
    with pytest.raises(BrokerError, match="another client"):
        other.start()


def test_a_topic_without_a_subscription_is_refused_with_the_cure(world: StompWorld) -> None:
    adapter = StompAdapter(parse_url(world.url))
    with pytest.raises(ConfigError) as caught:
        adapter.subscribe(Subscription(source=Destination("prices", "topic")))
    assert "subscription" in caught.value.cure


def test_the_queue_of_a_virtual_topic_is_an_ordinary_one(world: StompWorld) -> None:
    topic, dead = f"VirtualTopic.{world.new_name()}", world.new_queue()
    queue = f"Consumer.A.{topic}"
    consumer = world.consume(queue, fail_first(1), RedeliveryPolicy(3, 0.1, f"queue:{dead}"))
    world._open().send(f"/topic/{topic}", b"tick")
    assert world.wait_until(lambda: consumer.handler.done[b"tick"] == 1)
    assert consumer.counts == [1, 2]
    assert consumer.handler.runs[0].delivery.headers["original-destination"] == f"/topic/{topic}"
    consumer.stop()
    assert (world.depth(queue), world.depth(dead)) == (0, 0)


# -- selectors ---------------------------------------------------------------------------------------------


def test_a_selector_takes_some_and_its_retries_come_back_whatever_they_say(world: StompWorld) -> None:
    queue, topic, dead = world.new_queue(), world.new_name(), world.new_queue()
    seen = {"queue": Handler(world.now, fail_first(1)), "topic": Handler(world.now, fail_first(1))}
    app, policy = world.app(delay="schedule"), RedeliveryPolicy(3, 1.5, f"queue:{dead}")
    app.handler(queue, selector="colour = 'red'", policy=policy)(seen["queue"])
    app.handler(f"topic:{topic}", subscription="audit", selector="colour = 'red'", policy=policy)(seen["topic"])
    world.started(app)
    for colour in ("red", "blue"):
        for address in (f"/queue/{queue}", f"/topic/{topic}"):
            world._open().send(address, colour.encode(), {"colour": colour})
    assert world.wait_until(lambda: all(handler.done[b"red"] == 1 for handler in seen.values()))
    for handler in seen.values():
        assert [(run.body, run.count) for run in handler.runs] == [(b"red", 1), (b"red", 2)]
    app.stop(2.0)
    assert [raw.body for raw in world.take_all(queue)] == [b"blue"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_selector_that_is_none_is_an_error_at_start(world: StompWorld, kind: str) -> None:
    app = world.app()
    source = Destination(world.new_name(), kind, "audit" if kind == "topic" else "")
    app.handler(source, selector="this is (( no selector")(lambda delivery: None)
    begun = time.monotonic()
    with pytest.raises(ConfigError, match="selector") as caught:
        app.start()
    assert time.monotonic() - begun < 10
    assert "SQL" in caught.value.cure


# -- peers that say nothing --------------------------------------------------------------------------------


@pytest.fixture
def silent_peer() -> Iterator[int]:
    """Yield the port of a peer that accepts connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_silent_peer_hangs_neither_start_nor_stop(silent_peer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "HANDSHAKE_TIMEOUT", 0.3)
    begun = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="does not answer"):
        connect(f"activemq://u:p@127.0.0.1:{silent_peer}")
    assert time.monotonic() - begun < 5.0
    adapter = StompAdapter(parse_url(f"activemq://u:p@127.0.0.1:{silent_peer}"))
    monkeypatch.setattr(connecting, "HANDSHAKE_TIMEOUT", 60.0)
    adapter.start(Ear())
    time.sleep(0.1)  # let it connect: there is nothing that would tell
    begun = time.monotonic()
    adapter.close(5.0)
    assert time.monotonic() - begun < 1.0
    assert not adapter._loop.thread.is_alive()


def test_a_broker_that_falls_silent_does_not_hang_the_stop(world: StompWorld) -> None:
    consumer = world.consume(world.new_queue())
    adapter: Any = consumer.app._engine.adapter
    world.broker.pause()
    try:
        begun = time.monotonic()
        consumer.stop(2.0)
        assert time.monotonic() - begun < 5.0
        assert not adapter._loop.thread.is_alive()
    finally:
        world.broker.resume()


def test_a_peer_that_is_silent_beyond_its_heart_beats_is_left(world: StompWorld) -> None:
    queue = world.new_queue()
    with adapter_on(f"{world.url}?heartbeat=0.4", queue) as (_, ear):
        world._proxy.stall("down")
        ear.wait(lambda: ear.over == ear.generations[:1], 5.0)
        world.unsilence()
        ear.wait(lambda: len(ear.generations) == 2)


def test_a_slow_handler_does_not_stop_the_heart_beats(world: StompWorld) -> None:
    queue = world.new_queue()
    done = threading.Event()
    consumer = world.consume(queue, lambda _: time.sleep(3.0) or done.set(), url=f"{world.url}?heartbeat=0.5")
    world.send(queue, b"one")
    assert done.wait(15)
    consumer.stop()
    assert [(run.count, run.redelivered) for run in consumer.handler.runs] == [(1, False)]
    assert world.depth(queue) == 0


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "0.01"])
def test_a_heart_beat_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="heartbeat"):
        StompAdapter(parse_url(f"activemq://u:p@h?heartbeat={text}"))


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="hartbeat"):
        StompAdapter(parse_url("activemq://u:p@h?hartbeat=1"))


# -- looking -----------------------------------------------------------------------------------------------


def test_browsing_stops_at_its_limit_and_depth_counts_all(world: StompWorld) -> None:
    queue = world.new_queue()
    plain = world._open()
    for n in range(700):
        plain.send(f"/queue/{queue}", b"%d" % n, {"browser": "end"})
    with connect(world.url) as session:
        assert [d.body for d in session.browse(queue, 3)] == [b"0", b"1", b"2"]
        assert session.browse(queue, 0) == []
        assert session.depth(queue) == 700
        assert len(session.browse(queue, 10_000)) == 700
        with pytest.raises(ConfigError):
            session.depth("topic:prices")
    assert world.depth(queue) == 700


def test_a_burst_that_the_broker_does_not_read_blocks_nothing_else(world: StompWorld) -> None:
    """Megabytes for a full socket wait in our memory; consuming and settling go on meanwhile."""
    queue, good = world.new_queue(), world.new_queue()
    with adapter_on(world.other_url(hosts=[f"{world.broker.host}:{world.broker.port}"]), queue) as (adapter, ear):
        answers = Verdicts()
        for _ in range(40):
            adapter.publish(Outgoing(Destination(good), b"x" * 500_000, {}), answers)
        world.send(queue, b"one")
        ear.wait(lambda: ear.deliveries)
        settled = threading.Event()
        adapter.settle([(ear.deliveries[0], "accepted")], written=settled.set)
        assert settled.wait(5.0)
        assert answers.wait(40, 60.0) == ["ok"] * 40
    assert world.depth(good) == 40
