# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests order by key: messages of a key run one after the other, also while one of them is being retried."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Breaker, Delivery, Order, RedeliveryPolicy, Reject, RetryAfter
from redeliver_mw.errors import ConfigError
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.redelivery.order_places import PlaceKind
from redeliver_mw.testing import TestApp

KINDS = ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"]


class Shop:
    """Fails on a text as often as it is told to; remembers the texts of its runs and their times."""

    def __init__(self, **failures: int) -> None:
        self.left = dict(failures)
        self.error: type[Exception] = ConnectionError
        self.runs: list[str] = []
        self.at: list[float] = []
        self.done: list[str] = []
        self.test: TestApp | None = None

    def __call__(self, delivery: Delivery) -> None:
        text = delivery.text
        self.runs.append(text)
        self.at.append(0.0 if self.test is None else self.test.clock.now().mono)
        if self.left.get(text, 0):
            self.left[text] -= 1
            raise self.error(text)
        self.done.append(text)

    def app(self, key: Any = "customer", personality: str = "rabbitmq", **options: Any) -> TestApp:
        more = {name: options.pop(name) for name in ("batch", "prefetch", "decode") if name in options}
        app = App("memory://", **({"policy": RedeliveryPolicy(4, 1.0), "app_name": "shop"} | options))
        app.handler("orders", key=key, **more)(self)
        self.test = TestApp(app, personality=personality)
        return self.test

    def of(self, customer: str) -> list[str]:
        return [text for text in self.done if text.startswith(customer)]


def send(test: TestApp, *texts: str) -> None:
    """Send messages whose first letter is the customer; a dash stands for no customer."""
    for text in texts:
        headers = {} if text[0] == "-" else {"customer": text[0]}
        test.send("orders", text, headers, message_id=text)


def state(test: TestApp) -> dict[str, Any]:
    source: dict[str, Any] = test.app.health()["sources"]["queue:orders"]
    return source


# -- order --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("personality", KINDS)
def test_messages_of_a_key_wait_for_one_that_is_being_retried_and_others_do_not(personality: str) -> None:
    shop = Shop(a1=2)
    with shop.app(personality=personality) as test:
        send(test, "a1", "b1", "a2", "-1", "a3", "b2")
        assert shop.done == ["b1", "-1", "b2"]
        assert state(test)["behind"] == 2
        test.advance(10)
        assert shop.runs == ["a1", "b1", "-1", "b2", "a1", "a1", "a2", "a3"]
        assert (state(test)["behind"], test.depth("orders"), test.dead_letters("orders")) == (0, 0, [])


@pytest.mark.parametrize("personality", KINDS)
def test_the_next_of_a_key_runs_when_the_one_before_is_a_dead_letter(personality: str) -> None:
    shop = Shop(a1=9)
    with shop.app(personality=personality) as test:
        send(test, "a1", "a2")
        test.advance(10)
        assert shop.runs == ["a1"] * 4 + ["a2"]
        assert [letter.body for letter in test.dead_letters("orders")] == [b"a1"]


def test_a_rejected_message_keeps_nobody_waiting() -> None:
    shop = Shop(a1=1)
    shop.error = Reject
    with shop.app() as test:
        test.app.pause("orders")
        send(test, "a1", *[f"a{n}" for n in range(2, 100)])
        test.app.resume("orders")
        test.advance(0)
        assert shop.runs == [f"a{n}" for n in range(1, 100)]


def test_a_delay_that_the_handler_asks_for_keeps_the_order() -> None:
    class Busy(RetryAfter):
        def __init__(self, _: str) -> None:
            super().__init__(2.0, count=False)

    shop = Shop(a1=3)
    shop.error = Busy
    with shop.app() as test:
        send(test, "a1", "a2")
        test.advance(10)
        assert shop.runs == ["a1"] * 4 + ["a2"]


@pytest.mark.parametrize("personality", KINDS)
def test_a_delay_longer_than_a_hold_goes_by_copy_and_its_key_waits_for_that(personality: str) -> None:
    shop = Shop(a1=1)
    with shop.app(personality=personality, policy=RedeliveryPolicy(4, 40.0)) as test:
        send(test, "a1", "a2", "b1")
        test.advance(5)
        assert shop.runs == ["a1", "b1"]
        send(test, "a3")
        test.advance(60)
        assert shop.runs == ["a1", "b1", "a1", "a2", "a3"]


def test_a_copy_that_does_not_come_back_is_not_waited_for_longer_than_configured() -> None:
    shop = Shop(a1=1)
    with shop.app(Order("customer", max_wait=10.0), policy=RedeliveryPolicy(4, 15.0)) as test:
        send(test, "a1")
        test.advance(1)
        send(test, "a2", "a3")
        assert shop.runs == ["a1"]
        test.advance(9.5)
        assert shop.runs == ["a1"]
        test.advance(1)
        assert shop.runs == ["a1", "a2", "a3"]
        test.advance(20)
        assert shop.runs == ["a1", "a2", "a3", "a1"]


@pytest.mark.parametrize("personality", KINDS)
def test_a_lost_connection_keeps_the_order(personality: str) -> None:
    shop = Shop(a1=2)
    with shop.app(personality=personality) as test:
        send(test, "a1", "a2", "b1", "a3")
        for _ in range(3):
            test.broker.cut()
            test.advance(0.3)
        assert shop.of("a") == []
        test.advance(20)
        assert list(dict.fromkeys(shop.done)) == ["b1", "a1", "a2", "a3"]
        assert (state(test)["behind"], test.depth("orders")) == (0, 0)


def test_a_stop_leaves_what_waits_to_the_broker_uncounted() -> None:
    shop = Shop(a1=9)
    with shop.app(personality="rabbitmq-classic") as test:
        send(test, "a1", "a2", "a3")
        assert test.stop().clean
    test.clock.advance(2)
    waiting = {message.body: message for message in test.broker.peek(test.app.sources[0])}
    assert set(waiting) == {b"a1", b"a2", b"a3"}
    assert "redeliver_failures" not in waiting[b"a2"].headers
    assert shop.runs == ["a1"]


# -- keys ---------------------------------------------------------------------------------------------


def test_a_key_may_be_a_function() -> None:
    shop = Shop(a1=1)
    with shop.app(lambda delivery: delivery.text[0]) as test:
        for text in ("a1", "a2", "b1"):
            test.send("orders", text)
        test.advance(5)
        assert shop.runs == ["a1", "b1", "a1", "a2"]


@pytest.mark.parametrize("personality", ["rabbitmq", "artemis"])
def test_the_group_of_a_message_is_a_key_as_property_or_header(personality: str) -> None:
    shop = Shop(a1=1, b1=1)
    with shop.app("JMSXGroupID", personality) as test:
        test.send("orders", "a1", group_id="a")
        test.send("orders", "a2", group_id="a")
        test.send("orders", "b1", {"JMSXGroupID": "b"})
        test.send("orders", "b2", {"JMSXGroupID": "b"})
        test.advance(5)
        assert shop.runs == ["a1", "b1", "a1", "a2", "b1", "b2"]


def test_the_group_is_refused_where_the_broker_does_not_show_it() -> None:
    with pytest.raises(ConfigError, match="does not show the group") as refused:
        Shop().app("JMSXGroupID", "activemq").start()
    assert "header" in str(refused.value)


@pytest.mark.parametrize("odd", ["raises", "a list"])
def test_a_message_whose_key_cannot_be_computed_is_not_ordered_which_is_logged_once(
    odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    def key(delivery: Delivery) -> Any:
        if odd == "raises":
            raise KeyError("customer")
        return ["a"]

    shop = Shop(a1=1)
    with caplog.at_level(logging.WARNING, "redeliver_mw"), shop.app(key) as test:
        send(test, "a1", "a2", "a3")
        assert shop.runs == ["a1", "a2", "a3"]
    assert len([r for r in caplog.records if "no key" in r.getMessage()]) == 1


@pytest.mark.parametrize("key", ["", 7, b"customer", ["customer"]])
def test_what_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(ConfigError, match="key"):
        App("memory://").handler("orders", key=key)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_waiting", 0),
        ("max_waiting", 1.5),
        ("max_waiting", True),
        ("max_wait", 0),
        ("max_wait", "x"),
        ("max_wait", float("inf")),
        ("overflow", "drop"),
        ("overflow", "let go"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused_by_its_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        Order("customer", **{option: value})


@pytest.mark.parametrize(("keyword", "value"), [("most", 3), ("longest", 5.0), ("then", "park")])
def test_a_keyword_that_was_renamed_fails_as_any_unknown_one_does(keyword: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'"):
        Order("customer", **{keyword: value})


def test_what_cannot_go_together_is_refused_with_its_cure(tmp_path: Path) -> None:
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"
    parks = Order("customer", overflow="park")
    with pytest.raises(ConfigError, match="nack"):
        App("memory://", delay="nack").handler("orders", key="customer")
    with pytest.raises(ConfigError, match="needs a limbo"):
        App("memory://").handler("orders", key=parks)
    with pytest.raises(ConfigError, match="needs a limbo"):
        App("memory://", limbo=limbo, delay="hold").handler("orders", key=parks)
    with pytest.raises(ConfigError, match="crash_safe"):
        App("memory://", limbo=limbo, crash_safe=True).handler("orders", key=parks)
    with pytest.raises(ConfigError, match="ack timeout"):
        Shop().app(Order("customer", max_wait=60.0), ack_timeout=100.0).start()


# -- bounds -------------------------------------------------------------------------------------------


def test_healthy_messages_of_a_key_wait_for_each_other_however_many_they_are() -> None:
    shop = Shop()
    with shop.app(prefetch=10) as test:
        test.app.pause("orders")
        send(test, *[f"a{n}" for n in range(30)])
        test.app.resume("orders")
        test.advance(0)
        assert shop.runs == [f"a{n}" for n in range(30)]


def test_when_too_many_messages_wait_they_run_in_order_without_the_failing_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = Shop(a0=1, a7=1)
    with caplog.at_level(logging.WARNING, "redeliver_mw"), shop.app(Order("customer", max_waiting=3)) as test:
        send(test, "a0", "a1", "a2", "a3")
        assert shop.runs == ["a0"]
        send(test, "a4")
        assert shop.runs == ["a0", "a1", "a2", "a3", "a4"]
        test.advance(5)
        send(test, "a7", "a8", "a9", "a10", "a11")
        test.advance(5)
        assert shop.runs[5:] == ["a0", "a7", "a8", "a9", "a10", "a11", "a7"]
    said = [r.getMessage() for r in caplog.records if "their key" in r.getMessage()]
    assert len(said) == 1
    assert "more of them wait than may" in said[0]


def test_what_waits_and_what_is_held_fill_half_of_the_window_at_most() -> None:
    shop = Shop(a0=2, b0=2, c0=2)
    with shop.app(prefetch=20, policy=RedeliveryPolicy(4, 5.0)) as test:
        send(test, "a0", "b0", "c0")
        send(test, *[f"{who}{n}" for n in range(1, 3) for who in "abc"])
        assert state(test)["behind"] == 6  # and three are held
        send(test, "a3")
        assert state(test)["behind"] == 7
        send(test, "b3")
        assert (shop.of("b"), state(test)["behind"]) == (["b1", "b2", "b3"], 5)
        send(test, *[f"d{n}" for n in range(20)])
        assert len(shop.of("d")) == 20
        test.advance(30)
        assert shop.of("a") == ["a0", "a1", "a2", "a3"]
        assert shop.of("b") == ["b1", "b2", "b3", "b0"]


def test_when_the_rest_is_parked_it_comes_back_in_order_behind_what_waited(tmp_path: Path) -> None:
    shop = Shop(a0=3)
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"
    with shop.app(Order("customer", max_waiting=2), limbo=limbo, policy=RedeliveryPolicy(9, 3.0)) as test:
        send(test, *[f"a{n}" for n in range(8)], "b1")
        assert shop.runs == ["a0", "b1"]
        assert (state(test)["behind"], test.depth("orders")) == (2, 0)
        test.advance(2)
        send(test, "a8")
        test.advance(60)
        assert shop.of("a") == [f"a{n}" for n in range(9)]
        assert test.dead_letters("orders") == []


def test_places_that_the_limbo_refused_are_in_it_once_it_works_again(tmp_path: Path) -> None:
    shop, file = Shop(a0=3), tmp_path / "limbo.db"
    order, policy = Order("customer", max_waiting=1), RedeliveryPolicy(9, 30.0)
    with shop.app(order, limbo=f"sqlite:///{file}", policy=policy) as test:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        send(test, "a0", "a1", "a2")
        test.advance(0.1)  # a2 is to be parked, and is refused
        other.execute("ROLLBACK")
        places = "SELECT kind FROM redeliver_limbo_place ORDER BY number"
        assert other.execute(places).fetchall() == []
        test.advance(0.5)
        assert other.execute(places).fetchall() == [(PlaceKind.HERE,), (PlaceKind.HERE,), (PlaceKind.BEHIND,)]
        other.close()


def test_who_has_waited_too_long_is_parked_with_all_behind_it(tmp_path: Path) -> None:
    shop = Shop(a0=8)
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"
    key = Order("customer", max_wait=5.0)
    with shop.app(key, limbo=limbo, policy=RedeliveryPolicy(9, 3.0)) as test:
        send(test, "a0", "a1")
        test.advance(4)
        send(test, "a2")
        assert state(test)["behind"] == 2
        test.advance(1.5)
        assert (state(test)["behind"], test.depth("orders")) == (0, 0)
        test.advance(120)
        assert shop.of("a") == ["a0", "a1", "a2"]


def test_what_cannot_be_parked_waits_here_for_its_turn(tmp_path: Path) -> None:
    shop, parked = Shop(a0=2), set[str]()
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"

    def key(delivery: Delivery) -> str:
        if "redeliver_hop" in delivery.headers:
            parked.add(delivery.text)
        return delivery.text[0]

    with shop.app(Order(key, max_waiting=1), limbo=limbo, policy=RedeliveryPolicy(9, 3.0)) as test:
        send(test, "a0", "a1")
        test.send("orders", "a2", {"large": "x" * 130_000}, message_id="a2")
        send(test, "a3")
        test.advance(60)
        assert shop.of("a") == ["a0", "a1", "a2", "a3"]
        assert (test.dead_letters("orders"), test.depth("orders")) == ([], 0)
    assert "a3" in parked
    assert "a2" not in parked


def test_ordering_without_a_limbo_is_logged_at_the_start_with_its_consequences(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"
    for options, said in (
        ({}, "keeps its place and loses its count, and a delay for which half of the prefetch window has no room"),
        ({"policy": RedeliveryPolicy(3, 120.0)}, "a delay of more than 90 s is waited out by a copy"),
        ({"delay": "schedule", "limbo": limbo, "crash_safe": True}, "remember it: every delay is waited out"),
        ({"limbo": limbo}, ""),
    ):
        caplog.clear()
        with Shop().app(**options):
            found = [r.getMessage() for r in caplog.records if "order by key" in r.getMessage()]
        assert len(found) == bool(said)
        assert all(said in text and "Give limbo=" in text for text in found)


# -- with the others ----------------------------------------------------------------------------------


@pytest.mark.parametrize("personality", KINDS)
def test_a_breaker_keeps_the_order(personality: str) -> None:
    shop = Shop(a1=6)
    breaker = Breaker(failure_rate=1, window=3, min_calls=2, open_for=10.0)
    with shop.app(personality=personality, breaker=breaker) as test:
        send(test, "a1", "a2", "a3")
        test.advance(5)
        assert state(test)["breaker"]["state"] == "open"
        send(test, "a4")
        test.advance(400)
        assert shop.of("a") == ["a1", "a2", "a3", "a4"]
        assert (state(test)["behind"], test.depth("orders"), test.dead_letters("orders")) == (0, 0, [])


@pytest.mark.parametrize("personality", KINDS)
def test_counts_that_survive_a_crash_and_order_go_together(personality: str, tmp_path: Path) -> None:
    shop = Shop(a1=2, b2=1)
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"
    with shop.app(personality=personality, limbo=limbo, crash_safe=True) as test:
        send(test, "a1", "b1", "a2", "b2", "a3", "b3")
        test.advance(20)
        assert (shop.of("a"), shop.of("b")) == (["a1", "a2", "a3"], ["b1", "b2", "b3"])
        assert (test.depth("orders"), test.dead_letters("orders")) == (0, [])


def test_a_batch_has_no_two_messages_of_one_key() -> None:
    batches: list[list[str]] = []
    app = App("memory://", policy=RedeliveryPolicy(4, 1.0))

    @app.handler("orders", key="customer", batch=10)
    def on_orders(deliveries: list[Delivery]) -> None:
        batches.append([delivery.text for delivery in deliveries])
        if len(batches) == 1:
            raise ConnectionError

    with TestApp(app) as test:
        test.app.pause("orders")
        send(test, "a1", "a2", "b1", "a3", "b2")
        test.app.resume("orders")
        test.advance(5)
        assert batches[0] == ["a1", "b1"]
        assert all(len({text[0] for text in batch}) == len(batch) for batch in batches)
        assert [text for batch in batches[1:] for text in batch if text[0] == "a"] == ["a1", "a2", "a3"]
        assert [text for batch in batches[1:] for text in batch if text[0] == "b"] == ["b1", "b2"]


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_with_workers_side_by_side_one_of_a_key_runs_at_a_time_in_order(kind: str) -> None:
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker(f"order-{kind}", broker)
    lock, running, together, done = threading.Lock(), set[str](), list[str](), defaultdict[str, list[int]](list)
    tried, over = defaultdict[str, int](int), threading.Event()

    def act(delivery: Delivery) -> None:
        who, number = delivery.text.split()
        with lock:
            together.extend({who} & running)
            running.add(who)
            tried[delivery.text] += 1
        try:
            time.sleep(0.001)  # so that runs overlap
            if int(number) % 5 == 0 and tried[delivery.text] < 3:
                raise ConnectionError
            with lock:
                done[who].append(int(number))
                if sum(map(len, done.values())) == 160:
                    over.set()
        finally:
            with lock:
                running.discard(who)

    async def act_async(delivery: Delivery) -> None:
        act(delivery)

    app = App(f"memory://order-{kind}", policy=RedeliveryPolicy(6, 0.01), workers=4, app_name="shop", prefetch=400)
    app.handler("orders", key=lambda delivery: delivery.text.split()[0])(act if kind == "threads" else act_async)
    with app:
        for n in range(20):
            for who in "abcdefgh":
                broker.send("orders", f"{who} {n}".encode(), {}, message_id=f"{who}{n}")
        assert over.wait(20)
    assert together == []
    assert dict(done) == {who: list(range(20)) for who in "abcdefgh"}


@pytest.mark.parametrize("personality", KINDS)
def test_a_lost_connection_keeps_the_order_of_what_is_parked_too(personality: str, tmp_path: Path) -> None:
    shop = Shop(a0=3)
    limbo = f"sqlite:///{tmp_path / 'limbo.db'}"
    key, policy = Order("customer", max_waiting=2), RedeliveryPolicy(9, 3.0)
    with shop.app(key, personality, limbo=limbo, policy=policy) as test:
        send(test, *[f"a{n}" for n in range(5)])
        test.broker.cut()
        test.advance(0.5)
        send(test, "a5")
        test.advance(60)
        assert list(dict.fromkeys(shop.of("a"))) == [f"a{n}" for n in range(6)]
        assert (test.dead_letters("orders"), test.depth("orders")) == ([], 0)
