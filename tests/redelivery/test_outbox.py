# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what handlers send, beside the contract: limbo, crashes, loops that pull, ids, and calls without a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, connect
from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.errors import ConfigError
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.message import Destination, Outgoing, Past, Properties
from redeliver_mw.redelivery.outbox import Outbox, QueuedSend, SendRules, sends_of
from redeliver_mw.testing import TestApp, make_delivery, sent

PLAIN = Capabilities(dialect="plain", broker_kind="plain")


class Shop:
    """Sends on what an App gets, to a queue that is open and to a queue that can be full."""

    def __init__(self, limbo: Path | None, *, crash_safe: bool = False, personality: str = "rabbitmq") -> None:
        self.url, self.limbo, self.crash_safe = f"memory://?personality={personality}", limbo, crash_safe
        self.runs = 0
        self.test = self.start()
        self.test.broker.declare("open")
        self.test.broker.declare("full", max_length=1, refuse=True)
        self.test.broker.send("full", b"filler")

    def start(self) -> TestApp:
        limbo = None if self.limbo is None else f"sqlite:///{self.limbo}"
        app = App(self.url, limbo=limbo, crash_safe=self.crash_safe, app_name="shop")

        @app.handler("orders")
        def on_order(delivery: Delivery) -> None:
            self.runs += 1
            for target in ("open", "full"):
                delivery.send(target, delivery.body)

        return TestApp(app)

    def crash(self) -> None:
        """End the program with nothing more written; the next program has the broker and the clock of this one."""
        engine = self.test.app._engine
        assert engine is not None
        assert engine.runner is not None
        engine.runner.stopping = True
        if engine._gate is not None:
            engine._gate._stopped = engine._gate._closed = True
            engine._gate._lines.abandon()
        engine.adapter.close(0.0)
        following = self.start()
        following.broker, following.clock = self.test.broker, self.test.clock
        self.test = following

    def make_room(self) -> None:
        link = self.test.broker.connect()
        held = link.get("full")
        assert held is not None
        link.accept(held.tag)
        link.close()

    def ids(self, queue: str) -> list[str]:
        return [str(raw.properties.message_id) for raw in self.test.broker.peek(queue)]


@pytest.fixture
def ledgers() -> Iterator[None]:
    """Empty the ledgers, as they are in a new process."""
    from redeliver_mw.redelivery import ledger

    ledger._ledgers.clear()
    yield
    ledger._ledgers.clear()


def test_what_a_full_target_does_not_take_goes_into_limbo_and_the_source_goes_on(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "limbo.db")
    with shop.test as test:
        test.send("orders", b"one", message_id="m1")
        test.advance(10)
        assert (shop.runs, test.depth("orders"), test.depth("open")) == (1, 0, 1)
        assert test.app.health()["sources"]["queue:orders"]["why_paused"] is None
        shop.make_room()
        test.advance(600)
        assert [raw.body for raw in test.broker.peek("full")] == [b"one"]
        assert shop.ids("full") != shop.ids("open")
    assert shop.runs == 1


def test_after_a_crash_the_handler_runs_again_and_what_it_sends_has_the_same_ids(ledgers: None) -> None:
    from redeliver_mw.redelivery import ledger

    shop = Shop(None)
    shop.test.send("orders", b"one", message_id="m1")
    shop.test.advance(0.1)
    assert (shop.runs, shop.test.depth("open"), shop.test.depth("full")) == (1, 1, 1)
    shop.crash()
    ledger._ledgers.clear()
    shop.make_room()
    with shop.test as test:
        test.advance(60)
        assert (shop.runs, test.depth("orders"), test.depth("full")) == (2, 0, 1)
        first, second = shop.ids("open")
        assert first == second


def test_with_crash_safe_what_was_confirmed_before_the_crash_is_not_sent_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "limbo.db", crash_safe=True)
    shop.test.send("orders", b"one", message_id="m1")
    shop.test.advance(0.1)
    assert (shop.runs, shop.test.depth("open"), shop.test.depth("full")) == (1, 1, 1)
    shop.crash()
    shop.make_room()
    with shop.test as test:
        test.advance(60)
        assert (shop.runs, test.depth("orders")) == (2, 0)
        assert (test.depth("open"), test.depth("full")) == (1, 1)


@pytest.mark.parametrize("personality", ["rabbitmq", "activemq"])
def test_with_crash_safe_a_settle_that_is_lost_runs_no_handler_again(tmp_path: Path, personality: str) -> None:
    shop = Shop(tmp_path / "limbo.db", crash_safe=True, personality=personality)
    shop.make_room()
    with shop.test as test:
        test.broker.faults.drop_settle()
        test.send("orders", b"one", message_id="m1")
        test.broker.cut()
        test.advance(60)
        assert (shop.runs, test.depth("orders"), test.depth("open"), test.depth("full")) == (1, 0, 1, 1)


def test_where_the_broker_delays_nothing_a_delayed_message_waits_in_limbo(tmp_path: Path) -> None:
    app = App("memory://", limbo=f"sqlite:///{tmp_path}/limbo.db")

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        delivery.send("reminders", b"pay, please", after=3600)
        delivery.send("invoices", b"here it is")

    with TestApp(app) as test:
        for queue in ("reminders", "invoices"):
            test.broker.declare(queue)
        test.send("orders", b"one", message_id="m1")
        assert (test.depth("orders"), test.depth("invoices")) == (0, 1)
        test.advance(3599)
        assert test.depth("reminders") == 0
        test.advance(2)
        assert [raw.body for raw in test.broker.peek("reminders")] == [b"pay, please"]


def test_what_is_delayed_goes_out_before_the_transaction_it_cannot_join() -> None:
    app = App("memory://?personality=activemq")

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        delivery.send("later", b"later", after=5)
        delivery.send("now", b"now")

    with TestApp(app) as test:
        test.broker.faults.refuse(Destination("later"), 1)
        test.send("orders", b"one", message_id="m1")
        assert (test.depth("now"), test.depth("later")) == (0, 0)  # its confirm is waited for
        test.advance(1)
        assert (test.depth("orders"), test.depth("now"), test.depth("later")) == (0, 1, 0)
        test.advance(6)
        assert (test.depth("now"), test.depth("later")) == (1, 1)


def test_an_exception_that_the_policy_ignores_settles_and_sends_nothing() -> None:
    app = App("memory://", policy=RedeliveryPolicy(3, 1.0, ignore=KeyError))

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        delivery.send("next", b"x")
        raise KeyError("known, and of no importance")

    with TestApp(app) as test:
        test.broker.declare("next")
        test.send("orders", b"one", message_id="m1")
        assert (test.depth("orders"), test.depth("next")) == (0, 0)


def test_a_pulling_loop_sends_when_its_block_succeeds() -> None:
    broker = MemoryBroker("rabbitmq-classic", name="pulling")
    register_broker("pulling", broker)
    for queue in ("orders", "invoices"):
        broker.declare(queue)
    for n in range(3):
        broker.send("orders", b"m%d" % n, message_id=f"m{n}")
    failed = False
    with connect("memory://pulling?personality=rabbitmq-classic") as session:
        policy = RedeliveryPolicy(3, 0.01)
        for pulled in session.deliveries("orders", policy=policy, timeout=1.0):
            with pulled as delivery:
                delivery.send("invoices", b"for " + delivery.body)
                if delivery.body == b"m1" and not failed:
                    failed = True
                    raise ValueError("once")
    assert sorted(raw.body for raw in broker.peek("invoices")) == [b"for m0", b"for m1", b"for m2"]
    assert broker.depth("orders") == 0


def test_an_id_belongs_to_one_message_in_one_place_with_one_content() -> None:
    delivery = make_delivery(b"x", message_id="m1")

    def ids(*outs: Outgoing, lineage: str = "l", generation: int = 0) -> list[str]:
        sends = [QueuedSend(out) for out in outs]
        past = Past(generation=generation)
        return [out.copy_id for out in sends_of(delivery, past, lineage, sends, PLAIN)]

    one = Outgoing(Destination("a"), b"x", {"h": 1})
    twice = ids(one, one)
    assert len(set(twice)) == 2
    assert ids(one, one) == twice
    others = [
        ids(Outgoing(Destination("b"), b"x", {"h": 1})),
        ids(Outgoing(Destination("a"), b"y", {"h": 1})),
        ids(Outgoing(Destination("a"), b"x", {"h": 2})),
        ids(Outgoing(Destination("a"), b"x", {"h": 1}, Properties(type="t"))),
        ids(one, lineage="other"),
        ids(one, generation=1),
    ]
    assert len({*twice, *(id_ for found in others for id_ in found)}) == 8


def test_a_message_id_of_ones_own_is_kept() -> None:
    out = Outgoing(Destination("a"), b"x", {}, Properties(message_id="mine"))
    (found,) = sends_of(make_delivery(b"x"), Past(), "l", [QueuedSend(out)], PLAIN)
    assert found.properties.message_id == "mine"


def test_a_delay_is_counted_from_the_success_and_never_below_what_the_broker_knows() -> None:
    tick = Capabilities(dialect="tick", broker_kind="tick", schedule=ScheduleRange(smallest=1.0))
    sending = SendRules(tick).sending(Outgoing(Destination("a"), b"", {}), 0.2)
    assert sending.after == 1.0
    decided = SendRules(tick).sending(Outgoing(Destination("a"), b"", {}), 5.0).decided(10_000_000)
    assert [decided.later(at, 1.0).after for at in (12_000_000, 14_500_000, 15_000_000)] == [3.0, 1.0, 0.0]


def test_of_threads_that_race_with_the_end_each_message_goes_out_or_is_an_error() -> None:
    for _ in range(50):
        delivery = make_delivery(b"x")
        box = delivery.outbox = Outbox(SendRules(PLAIN))
        start = threading.Barrier(5)
        refused: list[int] = []

        def send(
            n: int, start: threading.Barrier = start, refused: list[int] = refused, d: Delivery = delivery
        ) -> None:
            start.wait()
            try:
                d.send("a", b"%d" % n)
            except ConfigError:
                refused.append(n)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        went = [int(sending.out.body) for sending in box.close()]
        for thread in threads:
            thread.join()
        assert sorted(went + refused) == [0, 1, 2, 3]


def test_a_handler_called_without_a_broker_tells_what_it_sent() -> None:
    def handler(delivery: Delivery) -> None:
        delivery.send("topic:prices", "1.75", {"currency": "EUR"}, after=5, type="price")

    delivery = make_delivery(b"x")
    handler(delivery)
    (out,) = sent(delivery)
    assert (str(out.target), out.body, out.headers, out.properties.type) == (
        "topic:prices",
        b"1.75",
        {"currency": "EUR"},
        "price",
    )
    with pytest.raises(ConfigError, match="after its handler was over"):
        handler(delivery)
