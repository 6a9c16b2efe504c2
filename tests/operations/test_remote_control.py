# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests an App that is linked to a store, on a broker in memory with a hand-driven clock: the App obeys operators."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from redeliver_mw import App, Breaker, Delivery, RedeliveryPolicy
from redeliver_mw.operations import Store
from redeliver_mw.operations.control import BreakerWish, PauseWish, app_status, control_breaker, control_source
from redeliver_mw.operations.tables import controls
from redeliver_mw.runtime.connection_health import not_ready
from redeliver_mw.testing import TestApp

KINDS = ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"]
BREAKER = Breaker(failure_rate=0.5, window=10, min_calls=4, open_for=30.0, max_open_for=30.0)


class Shop:
    """Handles messages of an App with a store, and sends the App an operator's wishes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.away = False
        self.done: list[str] = []
        self.runs: list[tuple[str, int]] = []

    def __call__(self, delivery: Delivery) -> None:
        self.runs.append((delivery.text, delivery.delivery_count))
        if self.away:
            raise ConnectionError("the warehouse does not answer")
        self.done.append(delivery.text)

    @contextmanager
    def app(self, personality: str = "rabbitmq", breaker: Any = BREAKER, **options: Any) -> Iterator[TestApp]:
        policy = RedeliveryPolicy(3, 1.0)
        app = App("memory://", policy=policy, breaker=breaker, app_name="shop", operations=self.url, **options)
        app.handler("orders")(self)
        app.handler("bills")(self)
        with TestApp(app, personality=personality) as test:
            yield test

    def ask(self, wish: PauseWish | BreakerWish, source: str | None = "orders", who: str = "ada@host") -> None:
        with Store(self.url) as store:
            if wish == "pause" or wish == "resume":
                control_source(store, "shop", wish, source or "", who=who)
            else:
                control_breaker(store, "shop", wish, source, who=who)


@pytest.fixture
def shop(url: str) -> Shop:
    return Shop(url)


@pytest.fixture
def file_shop(tmp_path: Path) -> Shop:
    return Shop(f"sqlite:///{tmp_path}/store.db")


def state(test: TestApp, source: str = "queue:orders") -> dict[str, Any]:
    found: dict[str, Any] = test.app.health()["sources"][source]
    return found


def send(test: TestApp, numbers: range, source: str = "orders") -> None:
    for n in numbers:
        test.send(source, f"m{n}", message_id=f"m{n}")


# -- pause and resume -------------------------------------------------------------------------------


def test_a_paused_source_hands_out_nothing_within_two_seconds_until_it_is_resumed(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "redeliver_mw"), shop.app() as test:
        send(test, range(3))
        shop.ask("pause")
        test.advance(2)
        send(test, range(3, 20))
        send(test, range(100, 103), "bills")
        assert shop.done == ["m0", "m1", "m2", "m100", "m101", "m102"]
        found = state(test)
        assert (found["paused"], found["paused_by"], found["consuming"]) == (True, "ada@host", False)
        assert found["why_not_consuming"] == "it was paused by ada@host"
        assert (state(test, "queue:bills")["paused_by"], not_ready(test.app.health())) == (None, [])
        shop.ask("resume", who="eve@host")
        test.advance(2)
        assert sorted(shop.done) == sorted(f"m{n}" for n in (*range(20), 100, 101, 102))
        assert (state(test)["paused"], state(test)["consuming"], test.depth("orders")) == (False, True, 0)
    lines = [line.getMessage() for line in caplog.records if "asked for that" in line.getMessage()]
    assert [line.partition(" at ")[0] for line in lines] == [
        "queue:orders is paused: ada@host asked for that",
        "queue:orders is resumed: eve@host asked for that",
    ]


@pytest.mark.parametrize("personality", KINDS)
def test_what_was_not_begun_goes_back_uncounted_and_a_held_message_keeps_its_count(
    file_shop: Shop, personality: str
) -> None:
    """The broker takes the message back without counting; ActiveMQ's STOMP does not, so there the message is kept."""
    shop, kept = file_shop, personality == "activemq"
    with shop.app(personality, breaker=None, delay="hold") as test:
        shop.away = True
        send(test, range(1))
        shop.ask("pause")
        test.advance(0.9)  # m0 is held, and due at 1.0
        send(test, range(1, 3))
        test.advance(1.0)
        shop.away = False
        send(test, range(3, 8))
        assert test.depth("orders") == (0 if kept else 5)
        test.advance(100)
        before = list(shop.runs)
        shop.ask("resume")
        test.advance(2)
        assert sorted(shop.done) == [f"m{n}" for n in range(8)]
        assert {run for run in shop.runs if run not in before} >= {(f"m{n}", 1) for n in range(3, 8)}
    assert max(count for text, count in shop.runs if text == "m0") >= 2
    assert test.dead_letters("orders") == []


def test_another_consumer_gets_the_messages_of_a_paused_source(file_shop: Shop) -> None:
    with file_shop.app() as test:
        test.start()
        file_shop.ask("pause")
        test.advance(1)
        send(test, range(4))
        other = test.broker.connect()
        taken = [other.get("orders") for _ in range(4)]
        assert sorted(held.message.body for held in taken if held) == [b"m0", b"m1", b"m2", b"m3"]


def test_a_wish_outlasts_a_restart_and_is_obeyed_before_the_first_message(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    with shop.app() as test:
        test.advance(1)
        shop.ask("pause")
        shop.ask("open", "bills")
    with caplog.at_level(logging.INFO, "redeliver_mw"), shop.app() as test:
        send(test, range(5))
        send(test, range(5), "bills")
        test.advance(100)
        assert shop.done == []
        assert state(test)["paused_by"] == "ada@host"
        assert state(test, "queue:bills")["breaker"]["state"] == "open"
        said = [line.getMessage() for line in caplog.records if "asked for that" in line.getMessage()]
        assert len(said) == 2
        shop.ask("resume")
        shop.ask("auto", None)
        test.advance(2)
        assert sorted(shop.done) == sorted(2 * [f"m{n}" for n in range(5)])
    caplog.clear()
    with caplog.at_level(logging.INFO, "redeliver_mw"), shop.app() as test:
        test.advance(5)
        assert [line for line in caplog.records if "asked for that" in line.getMessage()] == []


def test_a_source_runs_only_when_nobody_pauses_it(file_shop: Shop) -> None:
    shop = file_shop
    with shop.app() as test:
        test.start()
        test.app.pause("orders")
        shop.ask("pause")
        test.advance(1)
        send(test, range(2))
        test.app.resume("orders")
        test.advance(1)
        assert (shop.done, state(test)["why_not_consuming"]) == ([], "it was paused by ada@host")
        test.app.pause("orders")
        shop.ask("resume")
        test.advance(1)
        assert (shop.done, state(test)["why_not_consuming"]) == ([], "it was paused by the application")
        test.app.resume("orders")
        test.advance(1)
        assert sorted(shop.done) == ["m0", "m1"]


def test_a_lost_connection_does_not_end_a_pause(file_shop: Shop) -> None:
    with file_shop.app() as test:
        test.start()
        file_shop.ask("pause")
        test.advance(1)
        send(test, range(6))
        for _ in range(3):
            test.broker.cut()
            test.advance(5)
        assert (file_shop.done, state(test)["paused_by"]) == ([], "ada@host")
        file_shop.ask("resume")
        test.advance(2)
        assert sorted(file_shop.done) == [f"m{n}" for n in range(6)]


@pytest.mark.parametrize("personality", KINDS)
def test_messages_of_one_key_keep_their_order_over_a_pause(file_shop: Shop, personality: str) -> None:
    shop, done, failed = file_shop, list[str](), list[str]()
    app = App("memory://", policy=RedeliveryPolicy(5, 3.0), app_name="shop", operations=shop.url)

    @app.handler("orders", key="customer", workers=4)
    def handle(delivery: Delivery) -> None:
        if delivery.text == "m2" and len(failed) < 2:
            failed.append(delivery.text)
            raise ConnectionError("not now")
        done.append(delivery.text)

    with TestApp(app, personality=personality) as test:
        for n in range(5):  # m2 fails, and the others wait behind it
            test.send("orders", f"m{n}", {"customer": "7"}, message_id=f"m{n}")
        test.advance(1)
        shop.ask("pause")
        test.advance(10)
        for n in range(5, 10):
            test.send("orders", f"m{n}", {"customer": "7"}, message_id=f"m{n}")
        test.advance(10)
        assert done == ["m0", "m1"]
        shop.ask("resume")
        test.advance(200)
        assert done == [f"m{n}" for n in range(10)]


# -- the breaker ------------------------------------------------------------------------------------


@pytest.mark.parametrize("personality", KINDS)
def test_a_breaker_that_is_forced_open_stays_open_until_auto_lets_one_message_try(
    file_shop: Shop, personality: str
) -> None:
    shop = file_shop
    with shop.app(personality) as test:
        send(test, range(2))
        shop.ask("open")
        test.advance(1)
        send(test, range(2, 8))
        test.advance(120)
        test.app.resume("orders")  # tries one message, unless an operator keeps the breaker open
        test.advance(1)
        assert shop.done == ["m0", "m1"]
        found = state(test)["breaker"]
        assert (found["state"], found["forced"], found["why"]) == ("open", True, "ada@host asked for that")
        assert state(test)["why_not_consuming"] == "its breaker is open: ada@host asked for that"
        shop.away = True
        shop.ask("auto")
        test.advance(2)
        assert len(shop.runs) == 3  # one was tried, and failed
        assert (state(test)["breaker"]["state"], state(test)["breaker"]["forced"]) == ("open", False)
        shop.away = False
        test.advance(100)
        assert sorted(shop.done) == [f"m{n}" for n in range(8)]
        assert state(test)["breaker"]["state"] == "closed"
    assert test.dead_letters("orders") == []


def test_a_breaker_that_is_forced_closed_lets_all_messages_run_though_all_fail(file_shop: Shop) -> None:
    shop = file_shop
    with shop.app() as test:
        shop.away = True
        send(test, range(10))
        assert (len(shop.runs), state(test)["breaker"]["state"]) == (4, "open")
        shop.ask("close")
        test.advance(1)
        assert state(test)["breaker"]["state"] == "closed"
        test.advance(60)
        assert len(test.dead_letters("orders")) == 10
        shop.ask("auto")
        test.advance(1)
        send(test, range(20, 30))
        assert (state(test)["breaker"]["state"], state(test)["breaker"]["forced"]) == ("open", False)


def test_an_opening_that_ends_while_the_breaker_is_forced_changes_nothing(file_shop: Shop) -> None:
    shop = file_shop
    with shop.app() as test:
        shop.away = True
        send(test, range(10))
        test.advance(10)
        shop.ask("open")
        test.advance(120)
        assert len(shop.runs) == 4
        shop.away = False
        shop.ask("close")
        test.advance(5)
        assert sorted(shop.done) == [f"m{n}" for n in range(10)]


def test_a_pause_and_a_breaker_do_not_end_each_other(file_shop: Shop) -> None:
    shop = file_shop
    with shop.app() as test:
        shop.away = True
        send(test, range(10))
        shop.ask("pause")
        shop.away = False
        test.advance(200)  # the opening ends meanwhile
        assert (shop.done, state(test)["why_not_consuming"]) == ([], "it was paused by ada@host")
        shop.ask("open")
        test.advance(1)
        shop.ask("resume")
        test.advance(200)
        assert (shop.done, state(test)["breaker"]["state"]) == ([], "open")
        shop.ask("close")
        test.advance(2)
        assert sorted(shop.done) == [f"m{n}" for n in range(10)]


def test_a_wish_for_a_breaker_that_is_not_there_any_more_is_a_warning(
    file_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    with file_shop.app() as test:
        test.advance(1)
        file_shop.ask("open")
    with file_shop.app(breaker=None) as test:
        send(test, range(2))
        test.advance(5)
        assert file_shop.done == ["m0", "m1"]
    assert [line.getMessage() for line in caplog.records if "this App has none" in line.getMessage()] == [
        "queue:orders: ada@host wants its breaker: open, and this App has none"
    ]


def test_a_wish_of_a_newer_release_changes_nothing(file_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with file_shop.app() as test:
        test.advance(1)
        file_shop.ask("pause")
        test.advance(1)
        with Store(file_shop.url) as store, store.writing() as connection:
            connection.execute(update(controls).values(wish="drain"))
        test.advance(5)
        assert state(test)["paused_by"] == "ada@host"
    [line] = [line.getMessage() for line in caplog.records if "does not know" in line.getMessage()]
    assert line == "queue:orders: ada@host asked for 'drain' of its consumption, which this release does not know"


# -- reports ----------------------------------------------------------------------------------------


def test_a_process_reports_its_sources_at_once_when_they_change_and_every_ten_seconds(shop: Shop) -> None:
    with shop.app() as test, Store(shop.url) as store:
        test.start()
        began = test.clock.now().us
        test.advance(1)
        [found] = app_status(store, "shop", at_us=began)
        assert (found.state, found.started_us, [one.source for one in found.sources]) == (
            "running",
            began,
            ["queue:orders", "queue:bills"],
        )
        assert all(one.consuming and one.breaker == "closed" for one in found.sources)
        shop.ask("pause")
        shop.ask("open", "bills")
        test.advance(1)
        orders, bills = app_status(store, "shop", at_us=began)[0].sources
        assert (orders.consuming, orders.why, orders.forced) == (False, "it was paused by ada@host", False)
        assert (bills.breaker, bills.forced) == ("open", True)
        test.advance(60)
        [found] = app_status(store, "shop", at_us=test.clock.now().us)
        assert (found.state, test.clock.now().us - found.seen_us <= 11_000_000) == ("running", True)
    with Store(shop.url) as store:
        assert [one.state for one in app_status(store, "shop")] == ["stopped"]


def test_two_processes_each_obey_and_report(file_shop: Shop) -> None:
    other = Shop(file_shop.url)
    with file_shop.app() as one, other.app() as two:
        one.start()
        two.start()
        file_shop.ask("pause")
        one.advance(1)
        two.advance(1)
        assert [state(test)["paused_by"] for test in (one, two)] == ["ada@host", "ada@host"]
        with Store(file_shop.url) as store:
            found = app_status(store, "shop")
        assert len({process.process_id for process in found}) == 2
        assert [process.sources[0].consuming for process in found] == [False, False]
