# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests an App that parks for long delays, on the memory broker, a real database file, and a clock moved by hand."""

from __future__ import annotations

import functools
import logging
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.limbo import Limbo, service
from redeliver_mw.memory import Faults
from redeliver_mw.testing import TestApp


class FailingHandler:
    """Handles what is well, and fails on the rest; notes when."""

    def __init__(self) -> None:
        self.test: TestApp
        self.times: list[float] = []
        self.done: list[bytes] = []

    def __call__(self, delivery: Delivery) -> None:
        if b"failing" in delivery.body:
            self.times.append(self.test.clock.now().mono)
            raise ValueError("no")
        self.done.append(delivery.body)


def app_of(folder: Path, failing: FailingHandler, policy: RedeliveryPolicy, **options: object) -> App:
    app = App("memory://", policy=policy, limbo=f"sqlite:///{folder}/limbo.db", app_name="orders", **options)
    app.handler("orders")(failing)
    return app


def sql(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "limbo.db") as connection:
        return connection.execute(statement).fetchall()


def parked(folder: Path) -> int:
    return int(sql(folder, "SELECT count(*) FROM dms_limbo_msg")[0][0])


def refused(folder: Path, failing: FailingHandler, retry: int | None, times: int, seconds: float) -> TestApp:
    """Return an App with a message in limbo that its target has refused `times` times, after `seconds` have passed."""
    app = app_of(folder, failing, RedeliveryPolicy(2, [3600.0], "queue:dead"), delay="park", limbo_delivery_retry=retry)
    faults = Faults()
    failing.test = TestApp(app, faults=faults)
    failing.test.send("orders", b"failing")
    failing.test.advance(60.0)
    faults.refuse("orders", times=times)
    failing.test.advance(seconds)
    return failing.test


def rests_of(times: list[float]) -> list[float]:
    return [round(later - earlier, 3) for earlier, later in pairwise(times)]


def test_a_message_that_is_parked_is_off_the_broker_and_comes_back_when_it_is_due(tmp_path: Path) -> None:
    failing = FailingHandler()
    app = app_of(tmp_path, failing, RedeliveryPolicy(3, [3600.0, 7200.0], "queue:dead"), delay="park")
    records: list[AttemptRecord] = []
    app.on_attempt(records.append)
    with TestApp(app) as failing.test:
        failing.test.send("orders", b"failing", {"tenant": "a"})
        failing.test.advance(60.0)
        assert (failing.test.depth("orders"), parked(tmp_path)) == (0, 1)
        failing.test.advance(2.9 * 3600)
        assert rests_of(failing.times) == [pytest.approx(3600, abs=0.25)]
        failing.test.advance(3600)
        (letter,) = failing.test.dead_letters("orders")
        assert rests_of(failing.times)[1] == pytest.approx(7200, abs=0.25)
        assert (letter.headers["redeliver_failures"], letter.headers["tenant"]) == ("3", "a")
    assert parked(tmp_path) == 0
    assert [(r.outcome, r.mechanism) for r in records] == [
        ("redelivered", "park"),
        ("redelivered", "park"),
        ("dead_lettered", None),
    ]


def test_under_auto_short_delays_are_held_and_long_ones_parked_if_the_broker_cannot_delay(tmp_path: Path) -> None:
    failing = FailingHandler()
    app = app_of(tmp_path, failing, RedeliveryPolicy(3, [2.0, 600.0], "queue:dead"), declare="none")
    records: list[AttemptRecord] = []
    app.on_attempt(records.append)
    failing.test = TestApp(app)
    failing.test.broker.declare("dead")
    with failing.test:
        failing.test.send("orders", b"failing")
        failing.test.advance(1000.0)
    assert [record.mechanism for record in records] == ["hold", "park", None]


@pytest.mark.parametrize("retry", [None, 2, 5])
def test_a_message_that_its_target_refuses_limbo_delivery_retry_times_stays_in_limbo(
    retry: int | None, tmp_path: Path
) -> None:
    """Patch Bay tries five times unless its `limboDeliveryRetry` says otherwise; an App tries for three days."""
    with refused(tmp_path, FailingHandler(), retry, 100, 100 * 3600.0):
        pass
    assert sql(tmp_path, "SELECT delivery_count - 1 FROM dms_limbo_msg") == [(retry or 84,)]


@pytest.mark.parametrize("by", ["release", "sql"])
def test_a_retry_that_is_made_due_by_hand_runs_now_and_is_not_parked_again(by: str, tmp_path: Path) -> None:
    failing = FailingHandler()
    app = app_of(tmp_path, failing, RedeliveryPolicy(3, [3600.0], "queue:dead"), delay="park")
    with TestApp(app) as failing.test:
        failing.test.send("orders", b"failing")
        failing.test.advance(60.0)
        assert len(failing.times) == 1
        if by == "release":
            assert run(["limbo", "release", f"sqlite:///{tmp_path}/limbo.db"]) == 0
        sql(tmp_path, "UPDATE dms_limbo_msg SET delivery_date = 0")  # which `release` does by the real clock
        failing.test.advance(3.0)
        assert rests_of(failing.times) == [pytest.approx(60, abs=3)]
        assert parked(tmp_path) == 1  # for the next attempt
        failing.test.advance(3600.0)
        assert rests_of(failing.times)[1] == pytest.approx(3600, abs=1)
    assert len(failing.times) == 3


def test_what_a_full_target_refuses_goes_by_itself_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten messages, each refused six times: their target was full for more than half a minute."""
    failing, faults = FailingHandler(), Faults()
    app = app_of(tmp_path, failing, RedeliveryPolicy(2, [3600.0], "queue:dead"), delay="park")
    failing.test = TestApp(app, faults=faults)
    with failing.test, caplog.at_level(logging.WARNING, "redeliver_mw.limbo"):
        for number in range(10):
            failing.test.send("orders", b"failing", message_id=str(number))
        failing.test.advance(60.0)
        faults.refuse("orders", times=60)
        failing.test.advance(3600.0 + 240.0)
        assert len(failing.test.dead_letters("orders")) == 10
        assert parked(tmp_path) == 0
    said = [record.getMessage() for record in caplog.records if record.name == "redeliver_mw.limbo"]
    assert [("refuses" in line, "takes messages again" in line) for line in said] == [(True, False), (False, True)]


def test_a_repair_by_sql_is_seen_when_time_moves_on(tmp_path: Path) -> None:
    """The repair is the one in the manual of Patch Bay: `UPDATE dms_limbo_msg SET delivery_count=1`."""
    with refused(tmp_path, FailingHandler(), 2, 2, 10 * 3600.0) as test:
        assert parked(tmp_path) == 1
        sql(tmp_path, "UPDATE dms_limbo_msg SET delivery_count=1")
        test.advance(3.0)
        assert [letter.body for letter in test.dead_letters("orders")] == [b"failing"]
    assert parked(tmp_path) == 0


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (RedeliveryPolicy(7, [3600.0, 60.0], "queue:dead"), (3_600_000, 7, "queue:dead")),
        (RedeliveryPolicy(None, 90.0), (90_000, 0, "queue:DLQ.orders")),
        (RedeliveryPolicy(3, 90.0, ["queue:a.$", "topic:b"]), (90_000, 3, "queue:a.orders,topic:b")),
        (RedeliveryPolicy(3, 90.0, None, "discard"), (90_000, 3, "")),
    ],
)
def test_the_columns_of_a_retry_tell_its_delay_its_attempts_and_where_it_goes_in_the_end(
    policy: RedeliveryPolicy, told: tuple[int, int, str], tmp_path: Path
) -> None:
    failing = FailingHandler()
    with TestApp(app_of(tmp_path, failing, policy, delay="park")) as failing.test:
        failing.test.send("orders", b"failing")
        failing.test.advance(10.0)
        assert sql(tmp_path, "SELECT delay, max_attempts, failure_port FROM dms_limbo_delay") == [told]


def test_a_retry_in_an_arm_is_parked_with_the_terms_of_that_arm(tmp_path: Path) -> None:
    failing = FailingHandler()
    policy = RedeliveryPolicy(7, 3600.0, "queue:dead", arms={"patient": (0.5, {"dead_after": 9, "backoff": 60.0})})
    with TestApp(app_of(tmp_path, failing, policy, delay="park")) as failing.test:
        for number in range(40):
            failing.test.send("orders", b"failing", message_id=str(number))
        failing.test.advance(10.0)
        rows = sql(tmp_path, "SELECT DISTINCT delay, max_attempts FROM dms_limbo_delay")
    assert sorted(rows) == [(60_000, 9), (3_600_000, 7)]


@pytest.mark.parametrize("retry", [0, -1, 1.5, "5"])
def test_a_limbo_delivery_retry_that_is_no_count_is_refused(retry: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="limbo_delivery_retry"):
        app_of(tmp_path, FailingHandler(), RedeliveryPolicy(), limbo_delivery_retry=retry)


def test_a_limbo_delivery_retry_without_a_limbo_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a limbo"):
        App("memory://", limbo_delivery_retry=3)


def test_without_a_limbo_parking_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="needs a limbo") as refused:
        App("memory://", delay="park")
    assert "sqlite:///" in refused.value.cure


def test_healthy_messages_do_not_wait_behind_more_failing_ones_than_may_be_held(tmp_path: Path) -> None:
    failing = FailingHandler()
    app = app_of(tmp_path, failing, RedeliveryPolicy(2, 5.0, "queue:dead"), prefetch=10, declare="none")
    failing.test = TestApp(app)
    failing.test.broker.declare("dead")
    with failing.test:
        for n in range(50):
            failing.test.send("orders", b"failing %d" % n)
        failing.test.send("orders", b"well")
        assert failing.done == [b"well"]
        assert parked(tmp_path) == 45
        failing.test.advance(10.0)
        assert len(failing.test.dead_letters("orders")) == 50
    assert parked(tmp_path) == 0


def test_a_dead_letter_that_its_queue_does_not_take_is_parked_and_leaves_when_it_does(tmp_path: Path) -> None:
    failing, faults = FailingHandler(), Faults()
    app = app_of(tmp_path, failing, RedeliveryPolicy(1, 0.0, "queue:dead"))
    with TestApp(app, faults=faults) as failing.test:
        faults.refuse("dead", times=4)
        failing.test.send("orders", b"failing")
        failing.test.send("orders", b"well")
        failing.test.advance(2.0)
        assert failing.done == [b"well"]
        assert (failing.test.depth("orders"), parked(tmp_path)) == (0, 1)
        failing.test.advance(60.0)
        assert len(failing.test.dead_letters("orders")) == 1
    assert parked(tmp_path) == 0


def test_a_restart_finds_what_was_parked(tmp_path: Path) -> None:
    failing = FailingHandler()
    policy = RedeliveryPolicy(2, 600.0, "queue:dead")
    with TestApp(app_of(tmp_path, failing, policy, delay="park")) as failing.test:
        first = failing.test
        first.send("orders", b"failing")
        first.advance(10.0)
    assert parked(tmp_path) == 1
    failing.test = TestApp(app_of(tmp_path, failing, policy, delay="park"))
    failing.test.broker, failing.test.clock = first.broker, first.clock
    with failing.test:
        failing.test.advance(700.0)
        (letter,) = failing.test.dead_letters("orders")
        assert letter.headers["redeliver_failures"] == "2"
    assert parked(tmp_path) == 0


def test_a_database_that_cannot_be_opened_is_reported_before_anything_is_consumed(tmp_path: Path) -> None:
    (tmp_path / "limbo.db").write_bytes(b"no database at all" * 100)
    failing = FailingHandler()
    with pytest.raises(ConfigError) as refused:
        TestApp(app_of(tmp_path, failing, RedeliveryPolicy(2, 600.0), delay="park")).start()
    assert "limbo.db" in str(refused.value)


def test_while_limbo_is_locked_nothing_is_settled_and_afterwards_all_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(service, "Limbo", functools.partial(Limbo, busy_timeout=0.02))
    failing = FailingHandler()
    with TestApp(app_of(tmp_path, failing, RedeliveryPolicy(2, 600.0, "queue:dead"), delay="park")) as failing.test:
        other = sqlite3.connect(tmp_path / "limbo.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        failing.test.send("orders", b"failing")
        failing.test.advance(10.0)
        assert "locked" in caplog.text
        other.execute("ROLLBACK")
        other.close()
        assert parked(tmp_path) == 0
        failing.test.advance(60.0)
        assert parked(tmp_path) == 1
        failing.test.advance(600.0)
        assert len(failing.test.dead_letters("orders")) == 1
