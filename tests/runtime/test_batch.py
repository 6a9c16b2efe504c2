# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests batches: a handler gets a list, which succeeds or fails as one, while each message has its own count."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Breaker, Delivery, RedeliveryPolicy, Reject, RetryAfter, current_delivery
from redeliver_mw.errors import ConfigError
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.testing import TestApp

KINDS = ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"]


class Shop:
    """Handles batches, fails with `error` while one of `failing` is in a batch, and remembers what it was given."""

    def __init__(self, *failing: str, error: Exception | None = None) -> None:
        self.failing, self.error = set(failing), error or ConnectionError("away")
        self.batches: list[list[str]] = []
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self.done: list[str] = []

    def __call__(self, deliveries: Sequence[Any]) -> None:
        found = [one[1] if isinstance(one, tuple) else one for one in deliveries]
        self.batches.append([delivery.text for delivery in found])
        for delivery in found:
            self.counts[delivery.text].append(delivery.delivery_count)
        if self.failing & set(self.batches[-1]):
            raise self.error
        self.done += self.batches[-1]

    def app(
        self, batch: int = 5, *, personality: str = "rabbitmq", handler: Any = None, decode: Any = None, **options: Any
    ) -> TestApp:
        app = App("memory://", **({"policy": RedeliveryPolicy(3, 1.0), "app_name": "shop"} | options))
        app.handler("orders", batch=batch, decode=decode)(handler or self)
        return TestApp(app, personality=personality)


def at_once(test: TestApp, *texts: str) -> None:
    """Send messages so that all are there before the first is handled."""
    test.app.pause("orders")
    for text in texts:
        test.send("orders", text, message_id=text)
    test.app.resume("orders")
    test.advance(0)


TEXTS = [f"m{n}" for n in range(12)]


@pytest.mark.parametrize("personality", KINDS)
def test_a_handler_gets_what_has_arrived_and_never_more_than_it_asked_for(personality: str) -> None:
    shop = Shop()
    with shop.app(personality=personality) as test:
        at_once(test, *TEXTS)
        test.send("orders", "alone")
        assert shop.batches == [TEXTS[:5], TEXTS[5:10], TEXTS[10:], ["alone"]]
        assert test.depth("orders") == 0
    assert test.app.health()["handled"] == 13


def test_a_batch_of_one_is_a_list_too() -> None:
    shop = Shop()
    with shop.app(1) as test:
        at_once(test, "m0", "m1")
        assert shop.batches == [["m0"], ["m1"]]


@pytest.mark.parametrize("personality", KINDS)
def test_a_batch_fails_as_one_and_its_members_come_back_alone_each_with_its_own_count(personality: str) -> None:
    shop = Shop("m2")
    with shop.app(personality=personality) as test:
        at_once(test, *TEXTS)
        assert shop.batches == [TEXTS[:5], TEXTS[5:10], TEXTS[10:]]
        assert sorted(shop.done) == sorted(TEXTS[5:])
        test.advance(10)
        assert {len(batch) for batch in shop.batches[3:]} == {1}
        assert sorted(shop.done) == sorted(set(TEXTS) - {"m2"})
        assert shop.counts["m2"] == [1, 2, 3]
        assert [shop.counts[text] for text in TEXTS[:5] if text != "m2"] == [[1, 2]] * 4
        [letter] = test.dead_letters("orders")
        assert (letter.body, letter.headers["redeliver_failures"]) == (b"m2", "3")
        assert (test.depth("orders"), test.app.health()["sources"]["queue:orders"]["waiting"]) == (0, 0)


def test_one_that_has_failed_before_does_not_share_a_batch_with_those_that_are_new() -> None:
    shop = Shop("m0")
    with shop.app() as test:
        at_once(test, "m0")
        test.app.pause("orders")
        test.advance(1)
        at_once(test, "m1", "m2")
        assert shop.batches == [["m0"], ["m0"], ["m1", "m2"]]


def test_a_rejected_batch_is_dead_lettered_message_by_message() -> None:
    shop = Shop("m2", error=Reject("no such lamp"))
    with shop.app() as test:
        at_once(test, *TEXTS)
        letters = test.dead_letters("orders")
        assert sorted(letter.body.decode() for letter in letters) == sorted(TEXTS[:5])
        assert {letter.headers["redeliver_reason"] for letter in letters} == {"rejected"}


def test_a_delay_that_the_handler_asks_for_applies_to_the_whole_batch() -> None:
    shop = Shop("m2", error=RetryAfter(20.0, count=False))
    with shop.app() as test:
        at_once(test, *TEXTS[:5])
        test.advance(19.9)
        assert len(shop.batches) == 1
        shop.failing.clear()
        test.advance(1)
        assert sorted(shop.done) == TEXTS[:5]
        assert all(counts == [1, 1] for counts in shop.counts.values())


def test_each_message_of_a_batch_waits_by_its_own_count() -> None:
    times: list[tuple[float, str]] = []
    shop = Shop("m0", "m1")

    def handler(deliveries: list[Delivery]) -> None:
        times.extend((round(test.clock.now().mono, 3), delivery.text) for delivery in deliveries)
        shop(deliveries)

    with shop.app(handler=handler, policy=RedeliveryPolicy(5, [1.0, 4.0, 20.0])) as test:
        begun = test.clock.now().mono
        at_once(test, "m0")
        test.advance(1.5)
        at_once(test, "m1")
        test.advance(60)
    assert [at - begun for at, text in times if text == "m0"] == [0, 1, 5, 25, 45]
    assert [at - begun for at, text in times if text == "m1"] == [1.5, 2.5, 6.5, 26.5, 46.5]


def test_what_cannot_be_decoded_is_dead_lettered_alone_and_the_rest_is_handled() -> None:
    shop, given = Shop(), list[list[tuple[int, str]]]()

    def handler(batch: list[tuple[int, Delivery]]) -> None:
        given.append([(number, delivery.text) for number, delivery in batch])

    with shop.app(handler=handler, decode=int) as test:
        at_once(test, "1", "2", "three", "4", "five", "6")
        assert given == [[(1, "1"), (2, "2"), (4, "4"), (6, "6")]]
        letters = {letter.body: letter.headers["redeliver_reason"] for letter in test.dead_letters("orders")}
        assert letters == {b"three": "undecodable", b"five": "undecodable"}
        at_once(test, "seven")
        assert len(given) == 1


def test_no_one_delivery_is_in_hand() -> None:
    def handler(deliveries: list[Delivery]) -> None:
        with pytest.raises(LookupError):
            current_delivery()
        done.append(len(deliveries))

    done: list[int] = []
    with Shop().app(handler=handler) as test:
        at_once(test, "m0", "m1")
    assert done == [2]


def test_a_failed_batch_is_one_failure_to_a_breaker() -> None:
    shop = Shop(*TEXTS)
    with shop.app(4, breaker=Breaker(failure_rate=1, window=5, min_calls=3, open_for=30.0)) as test:
        at_once(test, *TEXTS[:8])
        assert test.app.health()["sources"]["queue:orders"]["breaker"]["state"] == "closed"
        test.send("orders", TEXTS[8], message_id=TEXTS[8])
        assert test.app.health()["sources"]["queue:orders"]["breaker"]["state"] == "open"
        assert len(shop.batches) == 3
        test.advance(31)
        assert [len(batch) for batch in shop.batches[3:]] == [1]  # one message is tried
        shop.failing.clear()
        test.advance(200)
        assert sorted(shop.done) == sorted(TEXTS[:9])


@pytest.mark.parametrize("personality", KINDS)
def test_a_lost_connection_in_the_midst_of_a_batch_leaves_nothing_out(personality: str) -> None:
    shop = Shop()

    def handler(deliveries: list[Delivery]) -> None:
        if len(shop.batches) == 1:
            test.broker.cut()
        shop(deliveries)

    with shop.app(personality=personality, handler=handler) as test:
        at_once(test, *TEXTS)
        test.advance(5)
        assert set(shop.done) == set(TEXTS)
        assert (test.depth("orders"), test.dead_letters("orders")) == (0, [])


def test_counts_that_survive_a_crash_and_batches_go_together(tmp_path: Path) -> None:
    shop = Shop("m2")
    with shop.app(limbo=f"sqlite:///{tmp_path / 'limbo.db'}", crash_safe=True) as test:
        at_once(test, *TEXTS)
        test.advance(60)
        assert sorted(shop.done) == sorted(set(TEXTS) - {"m2"})
        assert [letter.body for letter in test.dead_letters("orders")] == [b"m2"]


@pytest.mark.parametrize("batch", [0, -1, 1.5, True, "5", 101])
def test_a_batch_that_cannot_be_is_refused(batch: Any) -> None:
    with pytest.raises(ConfigError, match="batch") as refused:
        App("memory://", prefetch=100).handler("orders", batch=batch)
    assert refused.value.cure


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_with_workers_side_by_side_each_message_is_in_one_batch(kind: str) -> None:
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    name = f"batch-{kind}"
    register_broker(name, broker)
    lock, batches, done, over = threading.Lock(), list[int](), list[str](), threading.Event()

    def act(deliveries: list[Delivery]) -> None:
        with lock:
            batches.append(len(deliveries))
            if any(delivery.text == "m17" for delivery in deliveries):
                raise ConnectionError
            done.extend(delivery.text for delivery in deliveries)
            if len(done) == 199:
                over.set()

    async def act_async(deliveries: list[Delivery]) -> None:
        act(deliveries)

    handler: Callable[..., Any] = act if kind == "threads" else act_async
    for n in range(200):
        broker.send("orders", f"m{n}".encode(), {}, message_id=f"m{n}")
    app = App(f"memory://{name}", policy=RedeliveryPolicy(2, 0.01), workers=4, app_name="shop")
    app.handler("orders", batch=20)(handler)
    with app:
        assert over.wait(20)
    assert sorted(done) == sorted(f"m{n}" for n in range(200) if n != 17)
    assert max(batches) <= 20
    assert max(batches) > 1
