# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what is parked, what is due, and what becomes of it, on SQLite and on PostgreSQL."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from redeliver_mw.errors import ConfigError, NotCopyable
from redeliver_mw.limbo import Limbo, Parking
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.message import Destination
from redeliver_mw.redelivery.order_places import FoundPlace, OrderPlace, PlaceKind
from tests.limbo.messages import ORDERS, count, limbo, message, parkings, sql

TABLES = ("msg", "body", "props", "ptypes", "replyto", "delay")


def test_what_is_parked_comes_back_when_it_is_due_and_not_before(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall + 3600)])  # vector P6
        assert store.due() == []
        clock.advance(3599.9)
        assert store.due() == []
        clock.advance(0.1)
        (row,) = store.due()
        assert (row.out.target, row.out.body, row.out.copy_id) == (ORDERS, b"order 1", "copy-1")
        assert row.out == message(1)


def test_a_time_between_two_milliseconds_is_rounded_to_the_later_one(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall + 0.0002)])
        assert store.due() == []
        clock.advance(0.001)
        assert len(store.due()) == 1


def test_the_columns_tell_an_operator_what_the_message_is(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park(
            [Parking(message(1), clock.now().wall + 60, delay=60.0, max_attempts=7, failure_port="queue:DLQ.orders")]
        )
    row = sql(url, "SELECT delivery_date, delivery_count, msg_src_name, port_name FROM dms_limbo_msg")
    assert row == [(round(clock.now().wall * 1000) + 60_000, 1, "shop", "queue:orders")]
    assert sql(
        url, "SELECT delay, max_attempts, failure_port, jms_messageid, jms_destination FROM dms_limbo_delay"
    ) == [(60_000, 7, "queue:DLQ.orders", "ID:1", "queue:orders")]
    assert sql(url, "SELECT failures, lineage, generation, hop, source FROM redeliver_limbo_msg") == [
        (3, "lineage-1", 1, 3, "queue:orders")
    ]
    assert sql(url, "SELECT limbo_name FROM dms_limbo") == [("shop@east",)]
    assert sql(url, "SELECT prop_name, prop_value FROM dms_limbo_props") == [("customer", "c1")]


def test_a_message_that_is_merely_sent_later_has_no_line_of_a_redelivery(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, headers={}), clock.now().wall)])
        assert count(url) == 1
        assert sql(url, "SELECT * FROM dms_limbo_delay") == []


def test_what_was_published_is_removed_from_every_table(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park(parkings(range(3), clock.now().wall))
        rows = store.due()
        assert store.done(rows[:2]) == rows[:2]
        for table in (*(f"dms_limbo_{name}" for name in TABLES if name != "replyto"), "redeliver_limbo_msg"):
            assert sql(url, f"SELECT DISTINCT msg_id FROM {table}") == [(rows[2].id,)], table


def test_the_longest_due_comes_first_and_each_is_handed_out_once(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        now = clock.now().wall
        store.park([Parking(message(n), now - n) for n in (1, 3, 2, 4)])
        first, second = store.due(limit=3), store.due(limit=3)
        assert [row.out.body for row in (*first, *second)] == [b"order 4", b"order 3", b"order 2", b"order 1"]
        assert store.due() == []
        store.back(first)
        assert store.due() == first


def test_large_bodies_are_handed_out_a_few_at_a_time(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        big = b"x" * 7_000_000
        store.park([Parking(message(n, body=big), clock.now().wall - 10 + n) for n in range(4)])
        assert [[row.out.headers["customer"] for row in store.due()] for _ in range(3)] == [
            ["c0", "c1"],
            ["c2", "c3"],
            [],
        ]


def test_next_due_is_that_of_the_first_that_is_not_handed_out(url: str) -> None:
    clock = ManualClock()
    now = clock.now().wall
    with limbo(url, clock) as store:
        assert store.next_due() is None
        store.park([Parking(message(1), now - 5), Parking(message(2), now + 5)])
        assert store.next_due() == now - 5
        rows = store.due()
        assert store.next_due() == now + 5
        store.failed(rows, "refused", again=now + 2)
        assert store.next_due() == now + 2


def test_five_publishes_are_tried_then_it_stays_until_somebody_sets_the_count_back(url: str) -> None:
    """This is vector P4, in the words of the original's manual."""
    clock = ManualClock()
    with limbo(url, clock, retry=5) as store:
        store.park([Parking(message(1), clock.now().wall)])
        tried = 0
        for _ in range(20):
            for row in store.due():
                tried += 1
                assert [g.id for g in store.failed([row], "no such queue")] == ([row.id] if tried == 5 else [])
            clock.advance(120)
        assert tried == 5
        assert sql(url, "SELECT delivery_count FROM dms_limbo_msg") == [(6,)]
        assert sql(url, "SELECT publishes, last_error FROM redeliver_limbo_msg") == [(5, "no such queue")]
        assert store.next_due() is None
        sql(url, "UPDATE dms_limbo_msg SET delivery_count=1")
        assert store.next_due() is not None
        (row,) = store.due()
        assert store.done([row]) == [row]
        assert count(url) == 0


@pytest.mark.parametrize("retry", [1, 2])
def test_the_number_of_publishes_is_the_apps_choice(url: str, retry: int) -> None:
    clock = ManualClock()
    with limbo(url, clock, retry=retry) as store:
        store.park([Parking(message(1), clock.now().wall)])
        tried = 0
        for _ in range(5):
            rows = store.due()
            tried += len(rows)
            store.failed(rows, "no")
            clock.advance(120)
        assert tried == retry


def test_delays_between_failed_publishes_grow(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
        rests = []
        for _ in range(4):
            rows = store.due()
            began = clock.now().wall
            store.failed(rows, "no")
            rests.append(round((store.next_due() or 0) - began, 1))
            clock.advance(rests[-1] + 0.01)
        assert rests == [1.0, 2.0, 4.0, 8.0]


def test_a_target_that_refuses_is_tried_for_three_days_unless_the_app_says_otherwise(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
        began, rests = clock.now().wall, []
        while (due := store.next_due()) is not None:
            rests.append(due - clock.now().wall)
            clock.advance(max(rests[-1], 0.0) + 0.001)
            store.failed(store.due(), "no room")
        assert clock.now().wall - began == pytest.approx(3 * 86_400, rel=0.01)
        assert max(rests) == pytest.approx(3600, abs=0.01)


def test_a_target_that_refuses_is_one_line_of_the_log_and_another_when_messages_are_given_up(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with caplog.at_level(logging.WARNING, "redeliver_mw.limbo"), limbo(url, clock, retry=3) as store:
        store.park(parkings(range(10), clock.now().wall))
        for _ in range(6):
            for row in store.due():
                store.failed([row], "no room")
            clock.advance(60)
        said = [(record.levelname, record.getMessage()) for record in caplog.records]
        assert [level for level, _ in said] == ["WARNING", "ERROR"]
        assert "refuses what was parked for it, which is tried again, ever more slowly: no room" in said[0][1]
        assert "given up after 3 publishes, and any more will be: no room. Mend the target" in said[1][1]
        sql(url, "UPDATE dms_limbo_msg SET delivery_count=1")
        store.done(store.due())
        assert caplog.records[-1].getMessage().endswith("takes messages again")
        assert len(caplog.records) == 3


def test_those_given_up_do_not_stand_before_the_others(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park(parkings(range(1000), clock.now().wall - 10))
        sql(url, "UPDATE dms_limbo_msg SET delivery_count=85")
        store.park([Parking(message(5000), clock.now().wall)])
        assert [row.out.body for row in store.due(limit=5)] == [b"order 5000"]


def test_two_destinations_get_a_message_each(url: str) -> None:
    """This is vector P3."""
    clock = ManualClock()
    targets = [Destination("OrderAlarm"), Destination("prices", "topic", "audit")]
    with limbo(url, clock) as store:
        store.park([Parking(message(n, target=target), clock.now().wall) for n, target in enumerate(targets)])
        assert [row.out.target for row in store.due()] == targets


def test_a_copy_whose_answer_was_lost_is_parked_once(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        ids = store.park(parkings([1, 2], clock.now().wall))
        again = store.park(parkings([2, 3, 3], clock.now().wall))
        assert again[0] == ids[1]
        assert again[1] == again[2]
        assert count(url) == 3


def test_the_same_copy_id_of_another_broker_is_another_message(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as here, limbo(url, clock, broker="elsewhere:5672") as there:
        here.park([Parking(message(1), clock.now().wall)])
        there.park([Parking(message(1), clock.now().wall)])
        assert len(here.due()) == len(there.due()) == 1


def test_messages_without_a_copy_id_are_all_kept(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, copy_id=""), clock.now().wall)] * 2)
        assert count(url) == 2


def test_a_batch_with_one_that_cannot_be_kept_is_refused_before_anything_is_written(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        bad = message(2, headers={"x": object()})
        with pytest.raises(NotCopyable, match="type object"):
            store.park([Parking(message(1), 0.0), Parking(bad, 0.0)])
        assert count(url) == 0


def test_no_id_is_used_twice(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        first = store.park(parkings([1, 2], clock.now().wall))
        store.done(store.due())
    with limbo(url, clock) as store:
        assert not set(first) & set(store.park(parkings([3, 4], clock.now().wall)))


def test_a_repair_by_sql_is_what_is_sent(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall + 60)])
        body = "'order 7'" if url.startswith("sqlite") else "convert_to('order 7', 'UTF8')"
        sql(url, f"UPDATE dms_limbo_body SET msg_body = {body}")
        sql(url, "UPDATE dms_limbo_props SET prop_value = 'c7' WHERE prop_name = 'customer'")
        sql(url, "UPDATE dms_limbo_msg SET port_name = 'topic:repaired', delivery_date = 0")
        (row,) = store.due()
        assert (row.out.body, row.out.headers["customer"]) == (b"order 7", "c7")
        assert row.out.target == Destination("repaired", "topic")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE dms_limbo_msg SET port_name = ''",
        "UPDATE dms_limbo_props SET prop_value = 'many' WHERE prop_name = 'n'",
        "UPDATE redeliver_limbo_msg SET marks = CAST('{' AS {bytes})",
        "UPDATE redeliver_limbo_msg SET exact = CAST('[1]' AS {bytes})",
        'UPDATE redeliver_limbo_msg SET exact = CAST(\'{"headers": [[1]], "properties": {}}\' AS {bytes})',
        'UPDATE redeliver_limbo_msg SET exact = CAST(\'{"headers": [], "properties": {"a": 1}}\' AS {bytes})',
    ],
)
def test_a_message_damaged_by_hand_is_given_up_and_its_neighbours_go(url: str, damage: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, headers={"n": 5}), clock.now().wall)])
        sql(url, damage.replace("{bytes}", "BLOB" if url.startswith("sqlite") else "BYTEA"))
        store.park([Parking(message(2), clock.now().wall)])
        gone = []
        for _ in range(10):
            rows = store.due()
            gone += [row.out.body for row in store.done(rows)]
            clock.advance(120)
        assert gone == [b"order 2"]
        ((times, error),) = sql(url, "SELECT publishes, last_error FROM redeliver_limbo_msg")
        assert (times, bool(error)) == (5, True)


def test_a_message_that_somebody_wrote_into_the_documented_tables_is_sent(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        ((part,),) = sql(url, "SELECT limbo_id FROM dms_limbo")
        sql(url, f"INSERT INTO dms_limbo_msg VALUES (7, {part}, 0, 1, 'me', 'queue:orders', '', 0, NULL, NULL, NULL)")
        sql(url, "INSERT INTO dms_limbo_props VALUES (7, 'customer', 'c1')")
        (row,) = store.due()
        assert (row.out.target, row.out.body, row.out.headers) == (ORDERS, b"", {"customer": "c1"})
        store.done([row])
        assert count(url) == 0


def test_an_error_text_is_redacted_and_cut(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
        store.failed(store.due(), "amqp://me:hunter2@h/ refused\0 " + "x" * 10_000)
        ((error,),) = sql(url, "SELECT last_error FROM redeliver_limbo_msg")
        assert "hunter2" not in error
        assert len(error) == 2000


def test_several_threads_may_use_one_limbo(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        errors: list[BaseException] = []

        def work(first: int) -> None:
            try:
                for n in range(first, first + 50, 10):
                    store.park(parkings(range(n, n + 10), clock.now().wall))
                    store.done(store.due(limit=5))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n * 100,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert count(url) == 4 * (50 - 25)


@pytest.mark.parametrize("retry", [0, -1, 99])
def test_a_retry_that_the_column_cannot_count_is_refused(retry: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="limbo_delivery_retry"):
        Limbo(f"sqlite:///{tmp_path}/x.db", app="shop", retry=retry)


def test_in_memory_it_lives_as_long_as_it_is_open() -> None:
    clock = ManualClock()
    with limbo("sqlite://", clock) as store:
        store.park(parkings(range(3), clock.now().wall))
        assert len(store.done(store.due())) == 3


def test_places_are_kept_with_what_is_parked_and_tell_whether_their_copy_is_still_there(url: str) -> None:
    clock = ManualClock()
    first = OrderPlace(1, "key", "id-0", PlaceKind.HERE)
    places = [OrderPlace(n + 1, "key", f"lineage-{n}", PlaceKind.BEHIND, 7) for n in (1, 2)]
    with limbo(url, clock) as store:
        due = clock.now().wall
        store.park([Parking(message(1), due, places=(first, places[0]), source="queue:orders")])
        store.park([Parking(message(2), due + 60, places=(places[1],), source="queue:orders")])
        store.done(store.due())
    with limbo(url, clock) as store:
        found = [FoundPlace(first, False), FoundPlace(places[0], False), FoundPlace(places[1], True)]
        assert store.places(ORDERS) == found
        assert store.places(Destination("others")) == []
        again = replace(places[0], due_us=9)
        store.park([Parking(message(1), due, places=(again,), source="queue:orders")])
        store.forget_places([(ORDERS, ("key", 1)), (ORDERS, ("another", 2))])
        assert store.places(ORDERS) == [FoundPlace(again, True), FoundPlace(places[1], True)]
    with limbo(url, clock, broker="another:5672") as store:
        assert store.places(ORDERS) == []
