# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the memory adapter: its rules, its faults, its two ways of keeping time."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.adapter.protocol import Adapter, Sink, Subscription
from redeliver_mw.errors import ConfigError, DestinationMissing, RedeliverError
from redeliver_mw.memory import broker_from_url
from redeliver_mw.message import Delivery, Destination, Outgoing, Properties
from redeliver_mw.testing import Faults, ManualClock, MemoryAdapter, MemoryBroker, adapter_from_url, register_broker

ORDERS, DEAD = Destination("orders"), Destination("dlq.orders")


class Recorder:
    """Notes what it is told, as a sink."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.deliveries: list[Delivery] = []
        self.errors: list[RedeliverError] = []
        self.on_batch: Callable[[Sequence[Delivery]], None] = lambda batch: None

    def connected(self, capabilities: Capabilities, /) -> None:
        self.told.append("connected")

    def ready(self, source: Destination, generation: int, /) -> None:
        self.told.append(f"ready {generation}")

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        self.told.append(f"arrived {len(batch)}")
        self.deliveries.extend(batch)
        self.on_batch(batch)

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self.told.append(f"lost {generation}")

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        self.errors.append(error)


class Bench:
    """Holds a broker driven by hand, an adapter on it, and what the adapter told."""

    def __init__(self, personality: str = "rabbitmq", prefetch: int = 10) -> None:
        self.clock, self.faults, self.sink = ManualClock(), Faults(), Recorder()
        self.broker = MemoryBroker(personality, self.clock, self.faults)
        self.broker.declare(ORDERS)
        self.broker.declare(DEAD)
        self.adapter = MemoryAdapter(self.broker)
        self.answers: list[tuple[str, str]] = []
        self.adapter.start(self.sink)
        self.adapter.subscribe(Subscription(source=ORDERS, prefetch=prefetch))
        self.broker.run_until_idle()

    def send(self, *bodies: bytes) -> list[Delivery]:
        """Deliver these bodies, and return the deliveries that arrived because of them."""
        before = len(self.sink.deliveries)
        for body in bodies:
            self.broker.send(ORDERS, body)
        self.broker.run_until_idle()
        return self.sink.deliveries[before:]

    def publish(self, body: bytes, target: Destination = DEAD, after: float = 0.0) -> None:
        out = Outgoing(target, body, {}, Properties())
        self.adapter.publish(out, lambda verdict, text: self.answers.append((verdict, text)), after=after)
        self.broker.run_until_idle()

    def accept(self, *deliveries: Delivery, written: Callable[[], None] | None = None) -> None:
        self.adapter.settle([(delivery, "accepted") for delivery in deliveries], written=written)
        self.broker.run_until_idle()

    @property
    def verdicts(self) -> list[str]:
        return [verdict for verdict, _ in self.answers]


def of(bodies: Sequence[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in bodies]


def test_it_is_an_adapter_and_a_recorder_is_a_sink() -> None:
    bench = Bench()
    adapter: Adapter = bench.adapter
    sink: Sink = bench.sink
    assert adapter.capabilities.dialect == "memory+rabbitmq"
    assert sink is bench.sink


def test_it_says_connected_then_ready_then_hands_over_batches_up_to_the_prefetch() -> None:
    bench = Bench(prefetch=3)
    assert of(bench.send(b"1", b"2", b"3", b"4")) == [b"1", b"2", b"3"]
    assert bench.sink.told == ["connected", "ready 1", "arrived 3"]
    bench.accept(bench.sink.deliveries[0])
    assert of(bench.sink.deliveries) == [b"1", b"2", b"3", b"4"]


def test_nothing_happens_until_the_broker_is_driven() -> None:
    bench = Bench()
    bench.broker.send(ORDERS, b"1")
    assert bench.sink.deliveries == []
    assert bench.broker.step()
    assert of(bench.sink.deliveries) == [b"1"]


def test_a_delivery_carries_body_headers_and_properties() -> None:
    bench = Bench()
    bench.broker.send(ORDERS, bytes(range(256)), {"k": 1.75}, message_id="m1", content_type="x/y")
    bench.broker.run_until_idle()
    (delivery,) = bench.sink.deliveries
    assert delivery.body == bytes(range(256))
    assert delivery.headers == {"k": 1.75}
    assert (delivery.message_id, delivery.properties.content_type) == ("m1", "x/y")
    assert (delivery.destination, delivery.redelivered) == (ORDERS, False)
    assert delivery.reader.route(delivery.native) == {"exchange": "", "routing_key": "orders"}


def test_two_consumers_share_one_queue_and_each_message_goes_to_one_of_them() -> None:
    bench, other = Bench(), Recorder()
    second = MemoryAdapter(bench.broker)
    second.start(other)
    second.subscribe(Subscription(source=ORDERS, prefetch=10))
    bench.broker.run_until_idle()
    bench.send(*(b"%d" % n for n in range(10)))
    assert sorted(of(bench.sink.deliveries) + of(other.deliveries)) == [b"%d" % n for n in range(10)]
    assert bench.sink.deliveries
    assert other.deliveries


def test_two_consumers_that_are_both_idle_take_turns() -> None:
    bench, other = Bench(), Recorder()
    second = MemoryAdapter(bench.broker)
    second.start(other)
    second.subscribe(Subscription(source=ORDERS, prefetch=10))
    for n in range(10):
        bench.send(b"%d" % n)
    assert (len(bench.sink.deliveries), len(other.deliveries)) == (5, 5)


def test_an_expired_message_is_never_delivered() -> None:
    bench = Bench("activemq", prefetch=1)
    bench.broker.send(ORDERS, b"first")
    bench.broker.send(ORDERS, b"expires", expires_at_us=round((1_767_225_600 + 5) * 1e6))
    bench.clock.advance(6.0)
    bench.accept(bench.sink.deliveries[0])
    assert of(bench.sink.deliveries) == [b"first"]
    assert bench.broker.depth("ActiveMQ.DLQ") == 1


def test_an_exclusive_subscription_does_not_share() -> None:
    bench, other = Bench(), Recorder()
    second = MemoryAdapter(bench.broker)
    second.start(other)
    second.subscribe(Subscription(source=ORDERS, exclusive=True))
    bench.broker.run_until_idle()
    assert "another consumer" in str(other.errors[0])


def test_a_missing_source_is_made_only_when_that_is_wanted() -> None:
    bench = Bench()
    bench.adapter.subscribe(Subscription(source=Destination("absent")))
    bench.adapter.subscribe(Subscription(source=Destination("made"), declare=True))
    bench.broker.run_until_idle()
    assert [type(error) for error in bench.sink.errors] == [DestinationMissing]
    assert bench.sink.told[-1] == "ready 2"


def test_what_it_cannot_do_is_refused_at_once() -> None:
    bench = Bench("activemq")
    with pytest.raises(ConfigError, match="selector"):
        bench.adapter.subscribe(Subscription(source=ORDERS, selector="k=1"))
    with pytest.raises(ConfigError, match="name"):
        bench.adapter.subscribe(Subscription(source=Destination("t", "topic")))
    (delivery,) = bench.send(b"1")
    with pytest.raises(ValueError, match="does not honour 'released'"):
        bench.adapter.settle([(delivery, "released")])
    with pytest.raises(ConfigError, match="transactions"):
        Bench("rabbitmq").adapter.move(delivery, [], lambda verdict, text: None)


# -- settle-once: once, in its own generation -----------------------------------------------------------


def test_a_settle_of_an_old_generation_never_hits_the_message_that_has_its_tag_now() -> None:
    bench = Bench(prefetch=1)
    bench.send(b"mine", b"other")
    (old,) = bench.sink.deliveries
    other = bench.broker.connect()  # takes `mine` away, so that tag 1 will be `other`
    bench.faults.cut()
    assert other.is_open is False
    thief = bench.broker.connect()
    assert thief.get(ORDERS) is not None
    bench.clock.advance(1.0)
    new = bench.sink.deliveries[-1]
    assert (new.body, new.tag, new.generation != old.generation) == (b"other", old.tag, True)
    said: list[str] = []
    bench.accept(old, written=lambda: said.append("written"))
    assert said == []
    thief.drop()
    bench.adapter.close()
    assert sorted(m.body for m in bench.broker.peek(ORDERS)) == [b"mine", b"other"]


def test_settling_twice_is_dropped_and_the_channel_stays() -> None:
    bench = Bench()
    first, second = bench.send(b"1", b"2")
    bench.accept(first)
    bench.accept(first)
    bench.accept(first, second)
    assert not any(told.startswith("lost") for told in bench.sink.told)
    assert bench.broker.everything() == []


def test_a_settle_between_the_cut_and_the_news_of_it_is_not_written() -> None:
    bench = Bench()
    (delivery,) = bench.send(b"1")
    said: list[str] = []
    bench.adapter.settle([(delivery, "accepted")], written=lambda: said.append("written"))
    bench.broker.cut()
    bench.broker.run_until_idle()
    assert said == []
    assert bench.broker.depth(ORDERS) == 1


def test_after_a_cut_everything_is_lost_then_connected_ready_and_delivered_again() -> None:
    bench = Bench()
    bench.send(b"1", b"2")
    bench.faults.cut()
    bench.broker.run_until_idle()
    assert bench.sink.told == ["connected", "ready 1", "arrived 2", "lost 1"]
    bench.clock.advance(1.0)
    assert bench.sink.told[4:] == ["connected", "ready 2", "arrived 2"]
    assert [(d.body, d.redelivered) for d in bench.sink.deliveries[2:]] == [(b"1", True), (b"2", True)]
    assert bench.sink.deliveries[2].headers["x-delivery-count"] == 1


def test_a_killed_broker_is_waited_for() -> None:
    bench = Bench()
    bench.send(b"1")
    bench.broker.kill()
    bench.clock.advance(600.0)
    assert bench.sink.told[-1] == "lost 1"
    bench.publish(b"x")
    assert bench.answers == [("silent", "not connected")]
    bench.broker.restart()
    bench.broker.run_until_idle()
    assert bench.sink.told[-3:] == ["connected", "ready 2", "arrived 1"]


def test_after_a_settlement_that_was_lost_with_the_connection_the_message_comes_again() -> None:
    bench = Bench()
    (delivery,) = bench.send(b"1")
    bench.faults.drop_settle()
    said: list[str] = []
    bench.accept(delivery, written=lambda: said.append("written"))
    assert said == ["written"]
    bench.clock.advance(1.0)
    assert of(bench.sink.deliveries) == [b"1", b"1"]
    bench.accept(bench.sink.deliveries[-1])
    assert bench.broker.everything() == []


def test_two_ways_back_to_a_subscription_open_it_once() -> None:
    bench = Bench()
    (delivery,) = bench.send(b"1")
    delivery.native.queue.consumers[0].drop()  # only this channel
    bench.broker.run_until_idle()
    bench.broker.kill()
    bench.broker.restart()
    bench.clock.advance(5.0)
    assert [told for told in bench.sink.told if told.startswith("ready")] == ["ready 1", "ready 2"]
    assert len(delivery.native.queue.consumers) == 1


# -- safe-cumulative-ack: a cumulative ack ---------------------------------------------------------------------


def test_a_cumulative_ack_stops_at_a_delivery_that_is_still_running() -> None:
    bench = Bench()
    assert bench.adapter.capabilities.cumulative
    one, two, three, four = bench.send(b"1", b"2", b"3", b"4")
    bench.accept(one, three, four)
    bench.adapter.close()
    assert [message.body for message in bench.broker.peek(ORDERS)] == [two.body]


def test_a_released_delivery_is_not_covered_by_the_ack_of_a_later_one() -> None:
    bench = Bench()
    one, two, three = bench.send(b"1", b"2", b"3")
    bench.adapter.settle([(three, "accepted"), (one, "released"), (two, "accepted")])
    bench.broker.run_until_idle()
    assert of(bench.sink.deliveries) == [b"1", b"2", b"3", b"1"]
    bench.accept(bench.sink.deliveries[-1])
    assert bench.broker.everything() == []


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3), (1, 3, 0, 2, 4)])
def test_acks_in_any_order_and_any_batches_remove_every_message_once(order: tuple[int, ...]) -> None:
    for cut in range(1, 5):
        bench = Bench()
        deliveries = bench.send(b"0", b"1", b"2", b"3", b"4")
        bench.accept(*(deliveries[n] for n in order[:cut]))
        left = {place.message.body for place in bench.broker.everything()}
        assert left == {b"%d" % n for n in order[cut:]}
        bench.accept(*(deliveries[n] for n in order[cut:]))
        assert bench.broker.everything() == []


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("personality", "released", "returned"), [("rabbitmq", 0, 1), ("artemis", 0, 1)])
def test_released_is_uncounted_and_returned_is_counted(personality: str, released: int, returned: int) -> None:
    bench = Bench(personality)
    (first,) = bench.send(b"1")
    bench.adapter.settle([(first, "released")])
    bench.broker.run_until_idle()
    second = bench.sink.deliveries[-1]
    assert second.native.failed == released
    bench.adapter.settle([(second, "returned")])
    bench.broker.run_until_idle()
    assert bench.sink.deliveries[-1].native.failed == returned


# -- publishing ------------------------------------------------------------------------------------


def test_a_copy_that_is_kept_is_answered_ok_and_one_that_is_not_refused() -> None:
    bench = Bench()
    bench.faults.refuse("dlq.orders", text="no memory")
    bench.publish(b"1")
    bench.publish(b"2")
    bench.publish(b"3", Destination("nowhere"))
    assert bench.verdicts == ["refused", "ok", "refused"]
    assert bench.answers[0][1] == "no memory"
    assert "NO_ROUTE" in bench.answers[2][1]
    assert [m.body for m in bench.broker.peek(DEAD)] == [b"2"]


def test_a_foreign_header_that_cannot_be_copied_is_refused() -> None:
    bench = Bench()
    out = Outgoing(DEAD, b"x", {"odd": object()})
    bench.adapter.publish(out, lambda verdict, text: bench.answers.append((verdict, text)))
    bench.broker.run_until_idle()
    assert bench.verdicts == ["refused"]


@pytest.mark.parametrize("stored", [True, False])
def test_silence_ends_with_the_publishing_link_closed_and_says_so_once(stored: bool) -> None:
    bench = Bench()
    bench.faults.silence(DEAD, stored=stored)
    bench.publish(b"1")
    bench.clock.advance(29.9)
    assert bench.answers == []
    bench.clock.advance(0.2)
    assert bench.verdicts == ["silent"]
    assert bench.broker.depth(DEAD) == int(stored)
    bench.publish(b"2")
    assert bench.verdicts == ["silent", "ok"]
    assert not any(told.startswith("lost") for told in bench.sink.told)  # consuming goes on


def test_a_late_answer_is_an_answer_but_not_after_the_link_was_closed() -> None:
    bench = Bench()
    bench.faults.late(DEAD, 5.0)
    bench.faults.late(DEAD, 40.0)
    bench.publish(b"1")
    bench.publish(b"2")
    bench.clock.advance(5.0)
    assert bench.verdicts == ["ok"]
    bench.clock.advance(60.0)
    assert bench.verdicts == ["ok", "silent"]


def test_all_that_is_unanswered_on_a_link_falls_silent_with_it() -> None:
    bench = Bench()
    bench.faults.silence(times=2)
    bench.publish(b"1")
    bench.clock.advance(20.0)
    bench.publish(b"2")
    bench.clock.advance(10.0)
    assert bench.verdicts == ["silent", "silent"]
    bench.clock.advance(60.0)
    assert len(bench.answers) == 2


def test_a_memory_alarm_makes_publishes_wait_stops_their_clock_and_lets_consumers_go_on() -> None:
    bench = Bench()
    bench.faults.silence(stored=True)
    bench.publish(b"silent")
    bench.faults.block()
    bench.publish(b"waits")
    bench.clock.advance(3600.0)
    assert bench.answers == []
    bench.accept(*bench.send(b"drained"))
    assert bench.broker.depth(ORDERS) == 0
    bench.faults.unblock()
    bench.broker.run_until_idle()
    assert bench.verdicts == ["ok"]
    bench.clock.advance(60.0)
    assert bench.verdicts == ["ok", "silent"]


def test_a_cut_answers_what_was_unanswered_silent() -> None:
    bench = Bench()
    bench.faults.silence()
    bench.publish(b"1")
    bench.faults.block()
    bench.publish(b"2")
    bench.faults.cut()
    bench.broker.run_until_idle()
    assert bench.verdicts == ["silent", "silent"]


def test_a_publish_on_its_way_at_a_cut_is_neither_kept_nor_confirmed() -> None:
    bench = Bench()
    out = Outgoing(DEAD, b"x", {})
    bench.adapter.publish(out, lambda verdict, text: bench.answers.append((verdict, text)))
    bench.broker.cut()
    bench.broker.run_until_idle()
    assert bench.verdicts == ["silent"]
    assert bench.broker.depth(DEAD) == 0


@pytest.mark.parametrize(("personality", "asked", "real"), [("rabbitmq", 5.0, 4.0), ("artemis", 5.0, 5.0)])
def test_a_scheduled_copy_comes_when_its_broker_lets_it(personality: str, asked: float, real: float) -> None:
    bench = Bench(personality)
    bench.publish(b"later", ORDERS, after=asked)
    assert bench.verdicts == ["ok"]
    bench.clock.advance(real - 0.01)
    assert bench.sink.deliveries == []
    bench.clock.advance(0.01)
    assert of(bench.sink.deliveries) == [b"later"]


def test_a_target_is_looked_up_and_made_only_when_asked_to() -> None:
    bench = Bench()
    fresh = Destination("fresh")

    def check(target: Destination, declare: bool) -> None:
        bench.adapter.check(target, lambda verdict, text: bench.answers.append((verdict, text)), declare=declare)
        bench.broker.run_until_idle()

    check(fresh, False)
    check(fresh, True)
    check(fresh, False)
    bench.faults.missing(fresh)
    check(fresh, True)
    bench.publish(b"x", fresh)
    bench.faults.clear()
    bench.publish(b"x", fresh)
    assert bench.verdicts == ["refused", "ok", "ok", "refused", "refused", "ok"]


# -- transactions ----------------------------------------------------------------------------------


def move(bench: Bench, delivery: Delivery, *targets: str) -> None:
    outs = [(Outgoing(Destination(name), delivery.body, {}), 0.0) for name in targets]
    bench.adapter.move(delivery, outs, lambda verdict, text: bench.answers.append((verdict, text)))
    bench.broker.run_until_idle()


@pytest.mark.parametrize("personality", ["activemq", "artemis"])
def test_a_move_sends_all_copies_and_accepts_the_original_as_one(personality: str) -> None:
    bench = Bench(personality)
    (delivery,) = bench.send(b"1")
    move(bench, delivery, "d1", "d2")
    assert bench.verdicts == ["ok"]
    found = {(place.where, place.destination.name) for place in bench.broker.everything()}
    assert found == {("queued", "d1"), ("queued", "d2")}
    move(bench, delivery, "d1")
    assert bench.verdicts == ["ok", "abandoned"]


@pytest.mark.parametrize(
    ("personality", "verdict", "counts"), [("activemq", "refused", [0]), ("artemis", "abandoned", [0, 1])]
)
def test_one_refused_copy_undoes_the_whole_move(personality: str, verdict: str, counts: list[int]) -> None:
    bench = Bench(personality)
    (delivery,) = bench.send(b"1")
    bench.faults.refuse("d2")
    move(bench, delivery, "d1", "d2")
    assert bench.verdicts == [verdict]
    assert (bench.broker.depth("d1"), bench.broker.depth("d2")) == (0, 0)
    assert [d.native.failed for d in bench.sink.deliveries] == counts  # Artemis gives it back, counted


@pytest.mark.parametrize("stored", [True, False])
def test_silence_in_a_move_closes_the_connection_that_it_is_on(stored: bool) -> None:
    bench = Bench("activemq")
    (delivery,) = bench.send(b"1")
    bench.faults.silence("d1", stored=stored)
    move(bench, delivery, "d1")
    bench.clock.advance(31.0)
    assert bench.verdicts == ["abandoned"]
    assert "lost 1" in bench.sink.told
    assert (bench.broker.depth("d1"), len(bench.sink.deliveries)) == ((1, 1) if stored else (0, 2))


# -- looking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("personality", "marked"), [("rabbitmq", True), ("activemq", False)])
def test_browsing_shows_the_first_and_marks_them_only_where_the_broker_does(personality: str, marked: bool) -> None:
    bench = Bench(personality)
    for body in (b"1", b"2", b"3"):
        bench.broker.send(DEAD, body)
    seen: list[Sequence[Delivery] | RedeliverError] = []
    bench.adapter.browse(DEAD, 2, seen.append)
    bench.broker.run_until_idle()
    (batch,) = seen
    assert not isinstance(batch, RedeliverError)
    assert of(batch) == [b"1", b"2"]
    assert [m.redelivered for m in bench.broker.peek(DEAD)] == [marked, marked, False]
    bench.accept(*batch)
    assert bench.broker.depth(DEAD) == 3


def test_depth_counts_what_waits_and_a_missing_queue_is_reported() -> None:
    bench = Bench()
    bench.broker.send(DEAD, b"1")
    seen: list[int | RedeliverError] = []
    bench.adapter.depth(DEAD, seen.append)
    bench.adapter.depth(Destination("nowhere"), seen.append)
    bench.broker.run_until_idle()
    assert seen[0] == 1
    assert isinstance(seen[1], DestinationMissing)


# -- time and threads ------------------------------------------------------------------------------


def test_closing_writes_what_was_settled_and_gives_the_rest_back() -> None:
    bench = Bench()
    first, _ = bench.send(b"1", b"2")
    bench.adapter.settle([(first, "accepted")])
    bench.adapter.call_later(1.0, lambda: bench.sink.told.append("too late"))
    told = list(bench.sink.told)
    bench.adapter.close()
    bench.adapter.close()
    assert [(m.body, m.redelivered) for m in bench.broker.peek(ORDERS)] == [(b"2", True)]
    bench.broker.send(ORDERS, b"3")
    bench.clock.advance(10.0)
    assert bench.sink.told == told


def test_call_later_runs_at_its_instant_and_not_when_cancelled() -> None:
    bench = Bench()
    seen: list[float] = []
    bench.adapter.call_later(2.0, lambda: seen.append(bench.clock.now().mono))
    bench.adapter.call_later(1.0, lambda: seen.append(-1.0))()
    bench.clock.advance(5.0)
    assert seen == [2.0]


def test_a_history_by_hand_is_the_same_every_time() -> None:
    def history() -> list[str]:
        bench = Bench(prefetch=3)
        bench.faults.silence(times=1)
        for n in range(9):
            bench.broker.send(ORDERS, b"%d" % n)
            bench.publish(b"%d" % n, ORDERS, after=float(n))
        bench.faults.cut()
        bench.sink.on_batch = lambda batch: bench.adapter.settle([(d, "accepted") for d in batch])
        bench.clock.advance(60.0)
        assert bench.broker.everything() == []
        return bench.sink.told + bench.verdicts + [f"{d.body!r}{d.generation}" for d in bench.sink.deliveries]

    assert history() == history()


def test_a_hundred_thousand_messages_pass_quickly_and_memory_stays_flat() -> None:
    bench = Bench(prefetch=100)
    seen = 0

    def on_batch(batch: Sequence[Delivery]) -> None:
        nonlocal seen
        seen += len(batch)
        bench.sink.deliveries.clear()
        bench.sink.told.clear()
        bench.adapter.settle([(d, "accepted") for d in batch])

    bench.sink.on_batch = on_batch

    def ten_thousand() -> float:
        started = time.process_time()
        for _ in range(10):
            for _ in range(1000):
                bench.broker.send(ORDERS, b"x")
            bench.broker.run_until_idle()
        return time.process_time() - started

    first = ten_thousand()
    tracemalloc.start()
    ten_thousand()
    before = tracemalloc.get_traced_memory()[0]
    ten_thousand()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    last = [ten_thousand() for _ in range(7)]
    assert seen == 100_000
    assert grown < 100_000  # bytes, for 10 000 messages
    assert min(last) < 3 * first  # no slower with the hundred thousandth than with the first


@pytest.mark.parametrize("personality", ["rabbitmq", "activemq"])
def test_on_the_real_clock_one_thread_delivers_answers_and_keeps_time(personality: str) -> None:
    broker = MemoryBroker(personality)
    broker.declare(ORDERS)
    adapter, sink, done = MemoryAdapter(broker), Recorder(), threading.Event()
    threads: set[int] = set()

    def on_batch(batch: Sequence[Delivery]) -> None:
        threads.add(threading.get_ident())
        adapter.settle([(d, "accepted") for d in batch])
        if len(sink.deliveries) == 2000:
            adapter.call_later(0.01, on_time)

    def on_time() -> None:
        threads.add(threading.get_ident())
        done.set()

    sink.on_batch = on_batch
    adapter.start(sink)
    adapter.subscribe(Subscription(source=ORDERS, prefetch=50))
    for n in range(2000):
        broker.send(ORDERS, b"%d" % n)
    assert done.wait(20.0)
    adapter.close()
    assert of(sink.deliveries) == [b"%d" % n for n in range(2000)]
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert broker.everything() == []
    assert f"redeliver-{broker.id}" not in {thread.name for thread in settled_threads()}


def settled_threads() -> list[threading.Thread]:
    """Return the threads that are left once each closing thread has had its last instruction."""
    for thread in threading.enumerate():
        if thread.name.startswith("redeliver-memory"):
            thread.join(1.0)
    return threading.enumerate()


def test_on_the_real_clock_a_cut_under_load_from_another_thread_loses_nothing() -> None:
    broker = MemoryBroker("rabbitmq")
    broker.declare(ORDERS)
    adapter, sink, done = MemoryAdapter(broker, reconnect_after=0.001), Recorder(), threading.Event()
    seen: set[bytes] = set()

    def on_batch(batch: Sequence[Delivery]) -> None:
        seen.update(of(batch))
        adapter.settle([(d, "accepted") for d in batch])
        if len(seen) == 3000:
            done.set()

    sink.on_batch = on_batch
    adapter.start(sink)
    adapter.subscribe(Subscription(source=ORDERS, prefetch=20))
    for n in range(3000):
        broker.send(ORDERS, b"%d" % n)
        if n % 500 == 499:
            broker.cut()
    assert done.wait(20.0)
    adapter.close()
    assert broker.everything() == []
    assert sink.told.count("connected") >= 2


def test_on_the_real_clock_a_scheduled_copy_arrives_and_an_idle_adapter_costs_next_to_nothing() -> None:
    broker = MemoryBroker("artemis")
    adapter, sink, arrived = MemoryAdapter(broker), Recorder(), threading.Event()
    sink.on_batch = lambda batch: arrived.set()
    adapter.start(sink)
    adapter.subscribe(Subscription(source=ORDERS, declare=True))
    started = time.monotonic()
    adapter.publish(Outgoing(ORDERS, b"x", {}), lambda verdict, text: None, after=0.2)
    before = time.process_time()
    assert arrived.wait(10.0)
    assert time.monotonic() - started >= 0.2
    assert time.process_time() - before < 0.1
    adapter.close()


# -- URLs ------------------------------------------------------------------------------------------


def test_the_same_name_is_the_same_broker_and_another_name_another() -> None:
    one, same = broker_from_url("memory://Shop?personality=artemis"), broker_from_url("memory://Shop")
    other = broker_from_url("memory://Other")
    assert one is same
    assert (one.ways.name, other.ways.name) == ("artemis", "rabbitmq")
    assert broker_from_url("memory://") is broker_from_url("memory://")
    assert one.id != other.id


def test_a_test_plugs_in_a_broker_of_its_own() -> None:
    mine = MemoryBroker("activemq", ManualClock(), name="mine")
    register_broker("plugged", mine)
    adapter = adapter_from_url("memory://plugged")
    assert adapter.broker == mine.id
    assert adapter.capabilities.dialect == "memory+activemq"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory://a1?personality=kafka", "no personality"),
        ("memory://a2?prefetch=1", "does not know prefetch"),
        ("rabbitmq://a3", "does not begin with memory://"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        adapter_from_url(url)


def test_a_broker_does_not_change_its_personality() -> None:
    broker_from_url("memory://fixed?personality=activemq")
    with pytest.raises(ConfigError, match="plays activemq, not artemis"):
        broker_from_url("memory://fixed?personality=artemis")
