# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The limbo's thread: parks in batches, hands out what is due, waits for nobody, and goes on after trouble."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.limbo import Limbo, LimboWorker, Parked, Parking
from redeliver_mw.memory.clock import ManualClock
from tests.limbo.messages import count, limbo, message, sql


class Desk:
    """A clerk with a clock moved by hand, and what was told to it and by it."""

    def __init__(self, url: str, **more: Any) -> None:
        self.url, self.clock = url, ManualClock()
        self.store = limbo(url, self.clock, retry=5).open()
        self.published: list[Parked] = []
        self.answers: list[tuple[int, str, str]] = []
        self.clerk = LimboWorker(self.store, self.published.append, clock=self.clock, **more)

    def park(self, n: int, after: float = 0.0, **more: Any) -> None:
        parking = Parking(message(n, **more), self.clock.now().wall + after)
        self.clerk.park(parking, lambda verdict, why: self.answers.append((n, verdict, why)))

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        return [(n, verdict) for n, verdict, _ in self.answers]

    def out(self) -> list[str]:
        return [row.out.copy_id for row in self.published]


@pytest.fixture
def desk(file: Path) -> Any:
    made = Desk(f"sqlite:///{file}")
    yield made
    made.clerk.stop()


def test_an_answer_comes_when_it_is_in_the_database_and_not_before(desk: Desk) -> None:
    desk.park(1, 60)
    desk.park(2, 60)
    assert desk.answers == []
    desk.clerk.turn()
    assert desk.verdicts == [(1, "ok"), (2, "ok")]
    assert count(desk.url) == 2


def test_what_is_due_is_published_and_removed_once_that_is_confirmed(desk: Desk) -> None:
    desk.park(1, 5)
    assert 0 < desk.clerk.turn() <= 2
    assert desk.out() == []
    desk.clock.advance(5)
    desk.clerk.turn()
    assert desk.out() == ["copy-1"]
    desk.clerk.turn()
    assert desk.out() == ["copy-1"]  # it is not handed out again while it is under way
    assert count(desk.url) == 1
    desk.clerk.published(desk.published[0])
    desk.clerk.turn()
    assert count(desk.url) == 0


def test_it_wakes_when_the_next_one_is_due_and_every_two_seconds_at_least(desk: Desk) -> None:
    desk.park(1, 0.5)
    assert desk.clerk.turn() == pytest.approx(0.501, abs=0.002)
    desk.clock.advance(0.5)
    desk.clerk.turn()
    assert desk.clerk.turn() == 2.0


def test_what_somebody_else_makes_due_is_seen_at_the_next_look(desk: Desk) -> None:
    desk.park(1, 3600)
    rest = desk.clerk.turn()
    sql(desk.url, "UPDATE dms_limbo_msg SET delivery_date = 0")
    assert rest < 3
    desk.clock.advance(rest)
    desk.clerk.turn()
    assert desk.out() == ["copy-1"]


def test_what_cannot_be_kept_is_refused_alone(desk: Desk) -> None:
    desk.park(1)
    desk.park(2, headers={"x": object()})
    desk.park(3)
    desk.clerk.turn()
    assert sorted(desk.verdicts) == [(1, "ok"), (2, "unfit"), (3, "ok")]
    assert "type object cannot be kept exactly" in next(why for n, _, why in desk.answers if n == 2)


def test_no_more_are_under_way_than_the_window_allows(file: Path) -> None:
    desk = Desk(f"sqlite:///{file}", window=3)
    for n in range(8):
        desk.park(n)
    for _ in range(3):
        desk.clerk.turn()
    assert len(desk.published) == 3
    desk.clerk.published(desk.published[0])
    desk.clerk.back(desk.published[1], rest=0.0)
    desk.clerk.turn()
    assert len(desk.published) == 5
    desk.clerk.stop()


def test_a_publish_that_fails_is_counted_and_tried_again_until_it_is_given_up(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.park(1)
    with caplog.at_level(logging.ERROR, "redeliver_mw.limbo"):
        for _ in range(30):
            desk.clerk.turn()
            if desk.store.handed_out:
                desk.clerk.failed(desk.published[-1], "no such queue")
            desk.clock.advance(10)
    assert desk.out() == ["copy-1"] * 5
    assert [r.message for r in caplog.records if "given up after 5 publishes" in r.message]
    sql(desk.url, "UPDATE dms_limbo_msg SET delivery_count=1")
    desk.clerk.turn()
    assert desk.out() == ["copy-1"] * 6


def test_what_came_back_uncounted_goes_out_again(desk: Desk) -> None:
    desk.park(1)
    desk.clerk.turn()
    desk.clerk.back(desk.published[0], rest=0.5)
    assert desk.clerk.turn() == 0.5  # it does not spin while a broker is away
    assert desk.out() == ["copy-1"]
    desk.clock.advance(0.5)
    desk.clerk.turn()
    assert desk.out() == ["copy-1", "copy-1"]
    assert sql(desk.url, "SELECT delivery_count FROM dms_limbo_msg") == [(1,)]


def test_signs_of_life_are_given_every_third_of_the_lease(desk: Desk) -> None:
    beats = []
    for _ in range(4):
        desk.clock.advance(5)
        desk.clerk.turn()
        beats.append(sql(desk.url, "SELECT beat FROM redeliver_limbo_owner")[0][0])
    assert [later - beats[0] for later in beats] == [0, 1, 2, 3]


def test_in_trouble_parking_is_refused_what_was_published_is_remembered_and_it_is_said_once(
    desk: Desk, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk.park(1)
    desk.clerk.turn()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with caplog.at_level(logging.WARNING, "redeliver_mw.limbo"):
        desk.clerk.published(desk.published[0])
        for n in (2, 3):
            desk.park(n)
            assert 0 < desk.clerk.turn() <= 2
        assert desk.verdicts == [(1, "ok"), (2, "refused"), (3, "refused")]
        other.execute("ROLLBACK")
        other.close()
        desk.clerk.turn()
        desk.clerk.turn()
    assert count(desk.url) == 0
    assert desk.out() == ["copy-1"]
    said = [r.message for r in caplog.records]
    assert len([one for one in said if "locked" in one]) == 1
    assert said[-1].endswith("works again")


def test_who_publishes_and_raises_stops_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    store = limbo(f"sqlite:///{file}", clock).open()

    def publish(row: Parked) -> None:
        raise RuntimeError("no link")

    def answer(verdict: str, why: str) -> None:
        raise RuntimeError("nobody listens")

    clerk = LimboWorker(store, publish, clock=clock)
    clerk.park(Parking(message(1), 0.0), answer)
    for _ in range(20):
        clerk.turn()
        clock.advance(10)
    # at 0, 20, 40, 60, 80, 110 and 160 s: each failure is written at the next look, and rests double
    assert sql(f"sqlite:///{file}", "SELECT publishes, last_error FROM redeliver_limbo_msg") == [
        (7, "RuntimeError: no link")
    ]
    clerk.stop()


def test_as_a_thread_it_parks_publishes_and_stops(url: str) -> None:
    """The real clocks: nothing here waits longer than it must."""
    store = Limbo(url, app="shop").open()
    done = threading.Semaphore(0)
    answered = threading.Semaphore(0)
    late: list[float] = []
    clerk: LimboWorker

    def publish(row: Parked) -> None:
        late.append(time.time() - row.due)
        clerk.published(row)
        done.release()

    clerk = LimboWorker(store, publish)
    clerk.start()
    due = time.time() + 0.2
    for n in range(200):
        clerk.park(Parking(message(n), due), lambda verdict, why: answered.release() if verdict == "ok" else None)
    assert all(answered.acquire(timeout=30) for _ in range(200))
    assert all(done.acquire(timeout=30) for _ in range(200))
    assert min(late) >= 0
    assert clerk.stop(30)
    assert count(url) == 0


def test_messages_are_parked_in_the_order_in_which_they_were_given(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that after an end by force no place in the line of a key is there without those in front of it."""
    monkeypatch.setattr("redeliver_mw.limbo.worker.BATCH", 1)
    clerk = LimboWorker(Limbo(f"sqlite:///{file}", app="shop").open(), lambda row: None)
    clerk.start()
    answered: queue.SimpleQueue[int] = queue.SimpleQueue()
    for start in range(0, 60, 3):  # each time the thread waits for something to do
        for n in range(start, start + 3):
            clerk.park(Parking(message(n), time.time() + 60), lambda verdict, why, n=n: answered.put(n))
        assert [answered.get(timeout=30) for _ in range(3)] == [start, start + 1, start + 2]
    assert clerk.stop(30)


def test_stopping_brings_to_the_disk_what_was_said_before(file: Path) -> None:
    desk = Desk(f"sqlite:///{file}")
    desk.park(1)
    desk.clerk.turn()
    desk.clerk.published(desk.published[0])
    desk.park(2)
    desk.clerk.stop()
    assert desk.verdicts == [(1, "ok"), (2, "ok")]
    assert sql(desk.url, "SELECT copy_id FROM redeliver_limbo_msg") == [("copy-2",)]


def test_what_is_parked_after_the_end_is_refused_at_once(file: Path) -> None:
    desk = Desk(f"sqlite:///{file}")
    desk.clerk.stop()
    desk.park(1)
    assert desk.answers == [(1, "refused", "the limbo is closed")]


def test_a_disk_that_is_full_for_messages_only_is_said_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with desk.store._db.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 60")
    with caplog.at_level(logging.WARNING, "redeliver_mw.limbo"):
        for n in range(5):
            desk.park(n, body=b"x" * 1_000_000)
            desk.clerk.turn()
            desk.clock.advance(0.1)
    assert [verdict for _, verdict in desk.verdicts] == ["refused"] * 5
    assert len(caplog.records) == 1
    assert "its disk is full" in caplog.records[0].message
