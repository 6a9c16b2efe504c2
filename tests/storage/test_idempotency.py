# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how handled messages are remembered: once, while two are at it, after a crash, in the user's transaction."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from redeliver_mw import App, Delivery, Idempotency, RedeliveryPolicy, RetryAfter, redeliver
from redeliver_mw.decorator import policy_on
from redeliver_mw.errors import ConfigError, LimboError
from redeliver_mw.idempotency import PRUNE_EVERY, PRUNED
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.testing import TestApp, make_delivery
from tests.limbo.messages import sql

DAY = 86400.0


def message(name: str = "m1", **more: Any) -> Delivery:
    """Return a new delivery of the message of that name."""
    return make_delivery(more.pop("body", b"one lamp"), message_id=name, **more)


def helper(url: str, clock: ManualClock | None = None, **more: Any) -> Idempotency:
    return Idempotency(url, clock=clock or ManualClock(), **more)


def handle(once: Idempotency, delivery: Delivery) -> bool:
    with once(delivery) as fresh:
        return fresh


def lines(url: str) -> int:
    return int(sql(url, "SELECT count(*) FROM redeliver_limbo_handled")[0][0])


def test_what_was_handled_is_not_fresh_again_until_its_time_is_over(url: str) -> None:
    clock = ManualClock()
    once = helper(url, clock, ttl=DAY)
    assert [handle(once, message()), handle(once, message()), handle(once, message("m2"))] == [True, False, True]
    clock.advance(DAY - 1)
    assert not handle(once, message())
    clock.advance(2)
    assert handle(once, message())
    once.close()


def test_another_program_knows_it_too_and_so_does_the_next_one(url: str) -> None:
    clock = ManualClock()
    here, there = helper(url, clock), helper(url, clock)
    assert [handle(here, message()), handle(there, message())] == [True, False]
    here.close()
    assert not handle(here, message())  # it connects again
    here.close()
    there.close()


def test_a_failure_is_not_marked(url: str) -> None:
    once = helper(url)

    def fail() -> None:
        with once(message()) as fresh:
            assert fresh
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert lines(url) == 0
    assert handle(once, message())
    once.close()


def test_while_one_has_the_message_another_comes_again_later_and_that_costs_no_attempt(url: str) -> None:
    here, there = helper(url, lease=60.0), helper(url, lease=60.0)
    with here(message()), pytest.raises(RetryAfter) as told, there(message()):
        raise AssertionError("it was handled by two")
    assert (told.value.count, 0 < told.value.seconds <= 5.0) == (False, True)
    assert not handle(there, message())
    here.close()
    there.close()


def test_what_a_dead_program_had_is_handled_again_when_its_lease_is_over(url: str) -> None:
    clock = ManualClock()
    dead, alive = helper(url, clock, lease=60.0), helper(url, clock, lease=60.0)
    assert dead(message()).__enter__()
    dead.close()  # killed in its handler: the block never ends
    clock.advance(59)
    with pytest.raises(RetryAfter) as told:
        handle(alive, message())
    assert told.value.seconds == pytest.approx(1.0)
    clock.advance(1)
    assert handle(alive, message())
    assert not handle(alive, message())
    alive.close()


def test_a_handler_that_outlives_its_lease_marks_nothing_that_is_anothers(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    slow, quick = helper(url, clock, lease=10.0), helper(url, clock, lease=10.0)
    with slow(message()):
        clock.advance(11)
        block = quick(message())
        assert block.__enter__()
    assert "took longer than its lease of 10 s" in caplog.text
    with pytest.raises(RetryAfter):
        handle(slow, message())  # it is still the other's
    block.__exit__(None, None, None)
    assert not handle(slow, message())
    slow.close()
    quick.close()


def test_many_threads_at_once_handle_it_once(url: str) -> None:
    once, ran, told = helper(url), list[int](), list[int]()
    gate = threading.Barrier(8)

    def work(n: int) -> None:
        gate.wait()
        try:
            with once(message()) as fresh:
                if fresh:
                    ran.append(n)
        except RetryAfter:
            told.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ran) == 1
    once.close()


def test_a_retry_copy_and_a_replay_are_the_same_message(url: str) -> None:
    once, first = helper(url), message()
    assert handle(once, first)
    with_past = {
        "redeliver_failures": "1",
        "redeliver_failures_for": "orders",
        "redeliver_hop": "1",
        "redeliver_lineage": sql(url, "SELECT message FROM redeliver_limbo_handled")[0][0],
    }
    copy = message("another", headers=with_past)
    copy.known = False
    assert not handle(once, copy)
    once.close()


def test_sources_are_kept_apart_unless_one_scope_is_named(url: str) -> None:
    once = helper(url)
    assert handle(once, message())
    assert handle(once, message(destination="returns"))
    once.close()
    shared = helper(url, scope="shop", key=lambda delivery: str(delivery.message_id))
    assert [handle(shared, message()), handle(shared, message(destination="returns"))] == [True, False]
    shared.close()


def test_a_key_of_ones_own_finds_what_a_producer_has_sent_twice(url: str) -> None:
    once = helper(url, key=lambda delivery: str(delivery.json()["order"]))
    assert handle(once, message("m1", body=b'{"order": 7}'))
    assert not handle(once, message("m2", body=b'{"order": 7, "again": true}'))
    assert handle(once, message("m3", body=b'{"order": "7\\u0000\\ud800"}'))  # no database keeps that as it is
    once.close()


def test_a_message_without_an_id_is_an_error_with_its_cure(url: str) -> None:
    once = helper(url)
    with pytest.raises(ConfigError, match=r"no id that it could be known by.*key="):
        handle(once, make_delivery(b"x"))
    with pytest.raises(ConfigError, match=r"key= made None of it"):
        handle(helper(url, key=lambda _: None), message())  # what is refused
    once.close()


def test_it_can_be_forgotten(url: str) -> None:
    once = helper(url)
    handle(once, message())
    once.forget(message())
    assert handle(once, message())
    once.close()


def test_what_has_expired_is_removed_in_batches(url: str) -> None:
    clock = ManualClock()
    once = helper(url, clock, ttl=10.0)
    handle(once, message())
    values = ", ".join(f"('old', '{n}', '', 1)" for n in range(PRUNED + 100))
    sql(url, f"INSERT INTO redeliver_limbo_handled (source, message, claim, expires_us) VALUES {values}")
    for n in range(PRUNE_EVERY - 1):
        handle(once, message(f"n{n}"))
    assert lines(url) == PRUNE_EVERY + 100
    clock.advance(11)
    for n in range(PRUNE_EVERY):
        handle(once, message(f"later{n}"))
    assert lines(url) == PRUNE_EVERY
    once.close()


def test_what_has_expired_is_found_by_its_index(file: Path) -> None:
    once = helper(f"sqlite:///{file}")
    handle(once, message())
    plan = sql(
        f"sqlite:///{file}",
        "EXPLAIN QUERY PLAN SELECT source, message FROM redeliver_limbo_handled WHERE expires_us <= 5"
        " ORDER BY expires_us LIMIT 500",
    )
    assert "redeliver_limbo_handled_expires (expires_us<?)" in plan[0][3]
    once.close()


def test_a_success_that_cannot_be_marked_is_a_success_and_is_logged(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once = helper(f"sqlite:///{file}")
    with once(message()) as fresh:
        assert fresh
        sql(f"sqlite:///{file}", "DROP TABLE redeliver_limbo_handled")
    assert "was handled, and that cannot be marked" in caplog.text
    with pytest.raises(LimboError):
        handle(once, message())
    once.close()


@pytest.mark.parametrize("wrong", [{"ttl": 0}, {"ttl": True}, {"lease": float("inf")}, {"ttl": "1d"}])
def test_times_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no number of seconds above 0"):
        Idempotency("sqlite:///x.db", **wrong)


def test_a_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="no database URL"):
        Idempotency("limbo.db")
    with pytest.raises(ConfigError, match="has no database"):
        handle(Idempotency(), message())


# -- handlers -------------------------------------------------------------------------------------


def test_a_guarded_handler_is_called_once_for_a_message_that_comes_twice(url: str) -> None:
    app, ran = App("memory://", policy=RedeliveryPolicy(5, 1.0)), list[bytes]()
    once = Idempotency(url)

    @app.handler("orders")
    @once.guard
    def on_order(delivery: Delivery) -> None:
        ran.append(delivery.body)
        if len(ran) == 1:
            raise ConnectionError("once")

    with TestApp(app) as test:
        for _ in range(3):
            test.send("orders", b"one lamp", message_id="m1")
        test.advance(60)
        assert test.depth("orders") == 0
    assert ran == [b"one lamp", b"one lamp"]
    once.close()


def test_a_guarded_handler_may_be_async_and_get_a_decoded_body(url: str) -> None:
    app, ran = App("memory://"), list[Any]()
    once = Idempotency(url)

    @app.handler("orders", decode=bytes.decode)
    @once.guard
    async def on_order(order: str, delivery: Delivery) -> None:
        await asyncio.sleep(0)
        ran.append((order, delivery.message_id))

    with TestApp(app) as test:
        for _ in range(2):
            test.send("orders", b"one lamp", message_id="m1")
    assert ran == [("one lamp", "m1")]
    once.close()


def test_a_guarded_handler_keeps_its_policy_and_may_be_an_object_that_is_awaited() -> None:
    class Charging:
        async def __call__(self, delivery: Delivery) -> None:
            raise AssertionError("not called here")

    once = Idempotency()
    marked = redeliver("3:1000")(lambda delivery: None)
    assert policy_on(once.guard(marked)) is policy_on(marked) is not None
    assert inspect.iscoroutinefunction(once.guard(Charging()))


def test_a_send_within_the_block_is_refused_and_after_it_goes_out_each_time(url: str) -> None:
    app, errors = App("memory://"), list[ConfigError]()
    once = Idempotency(url)

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        with once(delivery) as fresh:
            if fresh:
                try:
                    delivery.send("invoices", b"within")
                except ConfigError as error:
                    errors.append(error)
        delivery.send("invoices", b"after")

    with TestApp(app) as test:
        test.broker.declare("invoices")
        for _ in range(2):
            test.send("orders", b"one lamp", message_id="m1")
        assert [raw.body for raw in test.broker.peek("invoices")] == [b"after", b"after"]
        ids = {raw.properties.message_id for raw in test.broker.peek("invoices")}
    assert len(ids) == 1  # who gets them can tell that they are one
    assert "Send after the block" in str(errors[0])
    once.close()


# -- within the user's own transaction ------------------------------------------------------------


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Yield the user's own database, with a table of orders and the table of marks."""
    made = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id TEXT)"))
        Idempotency.create_table(connection)
        Idempotency.create_table(connection)  # the second time there is nothing to do
    yield made
    made.dispose()


def test_mark_and_business_are_one_transaction(engine: Engine) -> None:
    once = Idempotency(clock=ManualClock())

    def order(*, fails: bool = False) -> None:
        with engine.begin() as connection:
            if once.first(message(), connection):
                connection.execute(text("INSERT INTO orders VALUES ('m1')"))
            if fails:
                raise ConnectionError("before the commit")

    with pytest.raises(ConnectionError):
        order(fails=True)
    for _ in range(3):
        order()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM orders")).all() == [("m1",)]


def test_two_transactions_at_once_wait_for_each_other(engine: Engine) -> None:
    if engine.dialect.name != "postgresql":
        return  # SQLite has one writer at a time anyway
    once, found = Idempotency(clock=ManualClock()), list[bool]()

    def second() -> None:
        with engine.begin() as connection:
            found.append(once.first(message(), connection))

    for rolled_back in (True, False):
        thread = threading.Thread(target=second)
        with engine.connect() as connection:
            assert once.first(message(), connection)
            thread.start()
            waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            with engine.connect() as looking:
                while not looking.execute(waits).scalar():
                    pass
            connection.rollback() if rolled_back else connection.commit()
        thread.join()
        if rolled_back:
            assert found == [True]
            with engine.begin() as connection:
                connection.execute(text("DELETE FROM redeliver_limbo_handled"))
    assert found == [True, False]


def test_an_expired_mark_is_a_first_time_again(engine: Engine) -> None:
    clock = ManualClock()
    once = Idempotency(ttl=10.0, clock=clock)

    def first() -> bool:
        with engine.begin() as connection:
            return once.first(message(), connection)

    assert [first(), first()] == [True, False]
    clock.advance(10)
    assert [first(), first()] == [True, False]
