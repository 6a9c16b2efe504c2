# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the breaker: while a dependency is away nothing is handed to handlers, and no attempt is burnt."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from redeliver_mw import App, Breaker, Delivery, RedeliveryPolicy, Reject, RetryAfter
from redeliver_mw.errors import ConfigError
from redeliver_mw.flow.breaker import FINE, Circuit, FailureClass
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.testing import TestApp, make_delivery

BROKEN = FailureClass("any", "OSError")
KINDS = ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"]


class Shop:
    """Handles messages with the help of a dependency that goes away and comes back, and remembers its runs."""

    def __init__(self, error: type[Exception] = ConnectionError) -> None:
        self.away = False
        self.error = error
        self.runs: list[tuple[float, str, int]] = []
        self.done: list[str] = []
        self.records: list[AttemptRecord] = []
        self.test: TestApp | None = None

    def __call__(self, delivery: Delivery) -> None:
        at = 0.0 if self.test is None else self.test.clock.now().mono
        self.runs.append((at, delivery.text, delivery.delivery_count))
        if self.away:
            raise self.error("the warehouse does not answer")
        self.done.append(delivery.text)

    def app(self, breaker: Any, personality: str = "rabbitmq", dead_after: int = 3, **options: Any) -> TestApp:
        policy = RedeliveryPolicy(dead_after, 1.0)
        app = App("memory://", policy=policy, breaker=breaker, app_name="shop", **options)
        app.handler("orders")(self)
        app.on_attempt(self.records.append)
        self.test = TestApp(app, personality=personality)
        return self.test


def state(test: TestApp) -> dict[str, Any]:
    source: dict[str, Any] = test.app.health()["sources"]["queue:orders"]
    return source


def circuit(**options: Any) -> Circuit:
    return Circuit(Breaker(**{"window": 4, "min_calls": 2, "open_for": 10.0, "max_open_for": 25.0} | options))


def run(c: Circuit, *blames: FailureClass) -> list[str]:
    changes = []
    for blame in blames:
        delivery = make_delivery(b"")
        assert c.admits(delivery)
        changes.append(c.ended(delivery, blame))
    return changes


# -- one circuit --------------------------------------------------------------------------------------


def test_it_opens_when_its_share_of_the_last_runs_failed_and_no_run_sooner() -> None:
    assert run(circuit(), BROKEN, BROKEN) == ["", "opened"]
    assert run(circuit(), FINE, FINE, BROKEN, BROKEN) == ["", "", "", "opened"]
    assert run(circuit(min_calls=3), BROKEN, BROKEN, BROKEN) == ["", "", "opened"]
    assert run(circuit(failure_rate=1), *[BROKEN, FINE, BROKEN, BROKEN, BROKEN, BROKEN]) == [""] * 5 + ["opened"]


def test_what_is_older_than_the_window_does_not_count() -> None:
    assert run(circuit(failure_rate=0.6), *[BROKEN, FINE, FINE, FINE, BROKEN, BROKEN]) == [""] * 6
    assert run(circuit(failure_rate=0.5, min_calls=4), *[BROKEN, FINE, FINE, FINE, BROKEN, FINE]) == [""] * 6


def test_half_open_it_admits_one_and_its_success_closes_it() -> None:
    c = circuit()
    run(c, BROKEN, BROKEN)
    first, second = make_delivery(b"1"), make_delivery(b"2")
    assert not c.admits(first)
    c.try_one()
    assert (c.admits(first), c.admits(second)) == (True, False)
    assert c.ended(first, FINE) == "closed"
    assert c.admits(second)
    assert run(c, BROKEN) == [""]  # what was before is forgotten


def test_each_failed_probe_doubles_the_pause_up_to_the_longest_and_a_success_resets_it() -> None:
    c = circuit()
    run(c, BROKEN, BROKEN)
    rests = [c.rest]
    for _ in range(3):
        c.try_one()
        assert run(c, BROKEN) == ["opened again"]
        rests.append(c.rest)
    assert rests == [10.0, 20.0, 25.0, 25.0]
    c.try_one()
    assert run(c, FINE) == ["closed"]
    assert (c.rest, c.openings) == (10.0, 4)


def test_a_probe_without_a_result_lets_another_message_be_the_probe() -> None:
    c = circuit()
    run(c, BROKEN, BROKEN)
    c.try_one()
    first, second = make_delivery(b"1"), make_delivery(b"2")
    assert c.admits(first)
    c.left(second)
    assert not c.admits(second)
    c.left(first)
    assert c.admits(second)


def test_results_of_runs_that_began_before_the_breaker_opened_do_not_count() -> None:
    c = circuit()
    late = [make_delivery(b"") for _ in range(3)]
    assert all(map(c.admits, late))
    run(c, BROKEN, BROKEN)
    assert [c.ended(late[0], FINE), c.ended(late[1], BROKEN)] == ["", ""]
    c.try_one()
    assert c.ended(late[2], FINE) == ""
    assert c.state == "half-open"


def test_each_exception_class_is_counted_by_itself() -> None:
    left, right = FailureClass("left"), FailureClass("right")
    assert run(circuit(failure_rate=0.75), left, right, left, right) == [""] * 4
    assert run(circuit(failure_rate=0.75, min_calls=3), left, right, left, left) == ["", "", "", "opened"]


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("failure_rate", 0),
        ("failure_rate", 1.1),
        ("failure_rate", "half"),
        ("failure_rate", True),
        ("failure_rate", float("nan")),
        ("window", 0),
        ("window", 1.5),
        ("window", True),
        ("min_calls", 0),
        ("min_calls", 21),
        ("open_for", 0),
        ("open_for", -1),
        ("open_for", float("inf")),
        ("open_for", None),
        ("max_open_for", 1.0),
        ("max_open_for", "x"),
        ("per", "queue"),
        ("per", ()),
        ("per", (OSError, "x")),
        ("per", 7),
        ("per", int),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_its_name(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option) as refused:
        Breaker(**{option: value})
    assert refused.value.cure


def test_an_app_takes_a_breaker_true_or_a_table_and_nothing_else() -> None:
    for given in (Breaker(), True, {"window": 30, "min_calls": 5}, None, False):
        App("memory://", breaker=given)
    with pytest.raises(ConfigError, match="'windows'"):
        App("memory://", breaker={"windows": 3})
    with pytest.raises(ConfigError, match="no option 'longest'"):  # its name until it was renamed
        App("memory://", breaker={"longest": 300.0})
    with pytest.raises(ConfigError, match="breaker"):
        App("memory://", breaker=3)  # what a user may write


# -- an App, by hand ----------------------------------------------------------------------------------


BREAKER = Breaker(failure_rate=0.5, window=10, min_calls=4, open_for=30.0, max_open_for=120.0)


@pytest.mark.parametrize("personality", KINDS)
def test_no_message_is_dead_lettered_though_the_outage_outlasts_the_whole_policy(personality: str) -> None:
    shop = Shop()
    with shop.app(BREAKER, personality) as test:
        shop.away = True
        for n in range(20):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        test.advance(3600)  # the policy's timeline is two seconds
        assert test.dead_letters("orders") == []
        assert state(test)["breaker"]["state"] == "open"
        tried = len(shop.runs)
        assert tried <= 4 + 1 + 3600 // 120 + 3
        shop.away = False
        test.advance(200)
        assert sorted(shop.done) == sorted(f"m{n}" for n in range(20))
        assert state(test)["breaker"]["state"] == "closed"
        assert (test.dead_letters("orders"), test.depth("orders"), state(test)["waiting"]) == ([], 0, 0)
        assert not state(test)["paused"]
        test.send("orders", "later")
        assert shop.done[-1] == "later"


def test_nothing_runs_while_it_is_open_and_then_exactly_one() -> None:
    shop = Shop()
    with shop.app(BREAKER) as test:
        shop.away = True
        for n in range(10):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        assert len(shop.runs) == 4
        test.advance(29.9)
        assert len(shop.runs) == 4
        test.advance(0.2)
        assert len(shop.runs) == 5
        test.advance(59.7)
        assert len(shop.runs) == 5
        test.advance(0.4)
        assert len(shop.runs) == 6
        opened = shop.runs[3][0]
        assert [round(at - opened, 3) for at, _, _ in shop.runs[4:]] == [30.0, 90.0]
        shop.away = False
        test.advance(121)
        assert len(shop.done) == 10


@pytest.mark.parametrize("personality", KINDS)
def test_what_was_not_begun_goes_back_uncounted_while_it_is_open(personality: str) -> None:
    """The broker takes the message back without counting; ActiveMQ's STOMP does not, so there the message is kept."""
    shop, kept = Shop(), personality == "activemq"
    with shop.app(BREAKER, personality) as test:
        shop.away = True
        for n in range(10):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        for _ in range(4):
            assert test.depth("orders") == (0 if kept else 6)
            test.advance(125)  # one is tried, and fails
            assert state(test)["breaker"]["state"] == "open"
        assert [message.count for message in test.broker.peek(test.app.sources[0])] == [0] * (0 if kept else 6)
        shop.away = False
        test.advance(125)
        assert sorted(shop.done) == sorted(f"m{n}" for n in range(10))
    assert {count for _, text, count in shop.runs if text > "m3"} == {1}


def test_another_consumer_gets_what_went_back() -> None:
    shop = Shop()
    with shop.app(BREAKER) as test:
        shop.away = True
        for n in range(10):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        other = test.broker.connect()
        taken = [other.get("orders") for _ in range(6)]
        assert sorted(held.message.body for held in taken if held) == [b"m%d" % n for n in range(4, 10)]
        for held in taken:
            assert held is not None
            other.accept(held.tag)
        shop.away = False
        test.advance(100)
        assert sorted(shop.done) == ["m0", "m1", "m2", "m3"]


def test_a_failed_probe_is_not_counted_and_its_record_names_the_reason() -> None:
    shop = Shop()
    with shop.app(Breaker(window=2, min_calls=1, open_for=10.0, max_open_for=10.0)) as test:
        shop.away = True
        test.send("orders", "one", message_id="m1")
        test.advance(95)
        assert [count for _, _, count in shop.runs] == [1] + [2] * 9
        shop.away = False
        test.advance(10)
        assert shop.done == ["one"]
    told = [(record.outcome, record.reason, record.delivery_count) for record in shop.records]
    assert told[:3] == [("redelivered", None, 1), ("redelivered", "breaker", 1), ("redelivered", "breaker", 1)]
    assert told[-1] == ("accepted", None, 2)


def test_even_a_policy_of_one_failure_spares_what_is_tried() -> None:
    shop = Shop()
    with shop.app(BREAKER, dead_after=1) as test:
        shop.away = True
        for n in range(10):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        test.advance(3600)
        assert len(test.dead_letters("orders")) == 4  # those that opened it
        shop.away = False
        test.advance(200)
        assert sorted(shop.done) == [f"m{n}" for n in range(4, 10)]
    assert {count for _, _, count in shop.runs} == {1}


def test_without_a_breaker_the_same_outage_kills_them_all() -> None:
    shop = Shop()
    with shop.app(None) as test:
        shop.away = True
        for n in range(10):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        test.advance(60)
        assert len(test.dead_letters("orders")) == 10
        assert state(test)["breaker"] is None


def test_a_message_that_arrives_while_it_is_half_open_is_the_one_that_is_tried() -> None:
    shop = Shop()
    with shop.app(Breaker(window=2, min_calls=1, open_for=5.0), dead_after=1) as test:
        shop.away = True
        test.send("orders", "dies")
        assert len(test.dead_letters("orders")) == 1  # its own policy allowed one failure
        test.advance(6)
        assert state(test)["breaker"]["state"] == "half-open"
        shop.away = False
        test.send("orders", "tried")
        assert (shop.done, state(test)["breaker"]["state"]) == (["tried"], "closed")


def test_only_failures_of_the_named_classes_open_it() -> None:
    shop = Shop(ValueError)
    breaker = Breaker(window=4, min_calls=2, per=(ConnectionError, TimeoutError))
    with shop.app(breaker, dead_after=1) as test:
        shop.away = True
        for n in range(6):
            test.send("orders", f"m{n}")
        assert (len(shop.runs), state(test)["breaker"]["state"]) == (6, "closed")
        shop.error = ConnectionResetError
        test.send("orders", "a")
        assert state(test)["breaker"]["state"] == "closed"
        shop.error = TimeoutError
        test.send("orders", "b")
        assert state(test)["breaker"]["state"] == "closed"  # one of each: neither is half of the last four
        test.send("orders", "c")
        assert state(test)["breaker"]["state"] == "open"
        assert "TimeoutError" in state(test)["breaker"]["why"]


@pytest.mark.parametrize("error", [Reject, KeyError])
def test_what_is_the_messages_own_fault_opens_nothing(error: type[Exception]) -> None:
    shop = Shop(error)
    app = App("memory://", policy=RedeliveryPolicy(3, 1.0, fatal=[KeyError]), breaker=Breaker(window=2, min_calls=1))
    app.handler("orders")(shop)
    with TestApp(app) as test:
        shop.away = True
        for n in range(5):
            test.send("orders", f"m{n}")
        assert len(test.dead_letters("orders")) == 5
        assert state(test)["breaker"]["state"] == "closed"


def test_a_handler_that_asks_for_a_delay_counts_as_an_outage() -> None:
    class Busy(RetryAfter):
        def __init__(self, _: str) -> None:
            super().__init__(2.0, count=False)

    shop = Shop(Busy)
    with shop.app(Breaker(window=2, min_calls=2)) as test:
        shop.away = True
        test.send("orders", "a")
        test.send("orders", "b")
        assert state(test)["breaker"]["state"] == "open"


def test_sources_have_a_circuit_each() -> None:
    shop, other = Shop(), Shop()
    test = shop.app(Breaker(window=2, min_calls=1))
    test.app.handler("letters")(other)
    with test:
        shop.away = True
        test.send("orders", "a")
        test.send("letters", "b")
        assert other.done == ["b"]
        assert test.app.health()["sources"]["queue:letters"]["breaker"]["state"] == "closed"


def test_a_pause_by_hand_outlasts_the_breaker_and_a_resume_by_hand_tries_at_once() -> None:
    shop = Shop()
    with shop.app(Breaker(window=2, min_calls=1, open_for=30.0)) as test:
        shop.away = True
        test.send("orders", "a", message_id="a")
        shop.away = False
        test.app.pause("orders")
        test.advance(100)
        assert shop.done == []
        test.app.resume("orders")
        test.advance(0)
        assert shop.done == ["a"]
        shop.away = True
        test.send("orders", "b", message_id="b")
        test.advance(2)
        shop.away = False
        assert state(test)["breaker"]["state"] == "open"
        test.app.resume("orders")
        test.advance(0)
        assert shop.done == ["a", "b"]


def test_a_lost_connection_changes_nothing() -> None:
    shop = Shop()
    with shop.app(BREAKER) as test:
        shop.away = True
        for n in range(8):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        for _ in range(5):
            test.broker.cut()
            test.advance(40)
        assert test.dead_letters("orders") == []
        shop.away = False
        test.advance(300)
        assert sorted(set(shop.done)) == sorted(f"m{n}" for n in range(8))
        assert state(test)["waiting"] == 0


def test_the_breaker_logs_once_when_it_opens_and_once_when_it_closes(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    with caplog.at_level(logging.INFO, "redeliver_mw"), shop.app(BREAKER) as test:
        shop.away = True
        for n in range(50):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        test.advance(29)
        assert [r.levelname for r in caplog.records if "breaker is" in r.message] == ["ERROR"]
        shop.away = False
        test.advance(5)
    said = [record.getMessage() for record in caplog.records if "breaker is" in record.message]
    assert said[0].startswith("queue:orders: the breaker is open for 30 s: 4 of the last 4 runs failed")
    assert said[1:] == ["queue:orders: the breaker is closed: handlers are called again"]


def test_a_stop_while_it_is_open_leaves_every_message_to_the_broker() -> None:
    shop = Shop()
    with shop.app(BREAKER) as test:
        shop.away = True
        for n in range(8):
            test.send("orders", f"m{n}", message_id=f"m{n}")
        report = test.stop()
    assert report.clean
    assert test.depth("orders") == 4
    test.clock.advance(2.0)  # the others wait as copies, with their counts
    assert test.depth("orders") == 8
    assert test.dead_letters("orders") == []


# -- an App on threads --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_with_workers_side_by_side_one_message_is_tried_at_a_time(kind: str) -> None:
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker(f"flow-{kind}", broker)
    lock, away, runs, done, changed = threading.Lock(), threading.Event(), [0, 0, 0], set[str](), threading.Event()
    away.set()

    def act(delivery: Delivery) -> None:
        with lock:
            runs[0] += 1
            runs[1] += 1
            runs[2] = max(runs[2], runs[1])
        try:
            if away.is_set():
                raise ConnectionError("away")
            with lock:
                done.add(delivery.text)
        finally:
            with lock:
                runs[1] -= 1

    async def act_async(delivery: Delivery) -> None:
        act(delivery)

    breaker = Breaker(window=20, min_calls=5, open_for=0.05, max_open_for=0.05)
    app = App(f"memory://flow-{kind}", policy=RedeliveryPolicy(12, 0.01), breaker=breaker, workers=4, app_name="shop")
    app.handler("orders")(act if kind == "threads" else act_async)
    app.on_attempt(lambda record: changed.set() if len(done) == 100 else None)
    with app:
        for n in range(100):
            broker.send("orders", f"m{n}".encode(), {}, message_id=f"m{n}")
        for _ in range(100):
            changed.wait(0.01)
        opened = app.health()["sources"]["queue:orders"]["breaker"]["openings"]
        assert opened >= 3
        assert runs[0] <= 5 + 4 + opened
        away.clear()
        assert changed.wait(10)
    assert broker.depth("DLQ.orders") == 0
