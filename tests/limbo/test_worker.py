# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the limbo's thread: it parks in batches, hands out what is due, waits for nobody, and goes on after trouble."""

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


class WorkerBench:
    """Holds a worker with a clock moved by hand, the parked messages that it published, and its answers."""

    def __init__(self, url: str, **more: Any) -> None:
        self.url, self.clock = url, ManualClock()
        self.store = limbo(url, self.clock, retry=5).open()
        self.published: list[Parked] = []
        self.answers: list[tuple[int, str, str]] = []
        self.worker = LimboWorker(self.store, self.published.append, clock=self.clock, **more)

    def park(self, n: int, after: float = 0.0, **more: Any) -> None:
        parking = Parking(message(n, **more), self.clock.now().wall + after)
        self.worker.park(parking, lambda verdict, why: self.answers.append((n, verdict, why)))

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        return [(n, verdict) for n, verdict, _ in self.answers]

    def out(self) -> list[str]:
        return [row.out.copy_id for row in self.published]


@pytest.fixture
def bench(file: Path) -> Any:
    made = WorkerBench(f"sqlite:///{file}")
    yield made
    made.worker.stop()


def test_an_answer_comes_when_it_is_in_the_database_and_not_before(bench: WorkerBench) -> None:
    bench.park(1, 60)
    bench.park(2, 60)
    assert bench.answers == []
    bench.worker.run_once()
    assert bench.verdicts == [(1, "ok"), (2, "ok")]
    assert count(bench.url) == 2


def test_what_is_due_is_published_and_removed_once_that_is_confirmed(bench: WorkerBench) -> None:
    bench.park(1, 5)
    assert 0 < bench.worker.run_once() <= 2
    assert bench.out() == []
    bench.clock.advance(5)
    bench.worker.run_once()
    assert bench.out() == ["copy-1"]
    bench.worker.run_once()
    assert bench.out() == ["copy-1"]  # it is not handed out again while it is under way
    assert count(bench.url) == 1
    bench.worker.published(bench.published[0])
    bench.worker.run_once()
    assert count(bench.url) == 0


def test_it_wakes_when_the_next_one_is_due_and_every_two_seconds_at_least(bench: WorkerBench) -> None:
    bench.park(1, 0.5)
    assert bench.worker.run_once() == pytest.approx(0.501, abs=0.002)
    bench.clock.advance(0.5)
    bench.worker.run_once()
    assert bench.worker.run_once() == 2.0


def test_what_somebody_else_makes_due_is_seen_at_the_next_look(bench: WorkerBench) -> None:
    bench.park(1, 3600)
    rest = bench.worker.run_once()
    sql(bench.url, "UPDATE dms_limbo_msg SET delivery_date = 0")
    assert rest < 3
    bench.clock.advance(rest)
    bench.worker.run_once()
    assert bench.out() == ["copy-1"]


def test_what_cannot_be_kept_is_refused_alone(bench: WorkerBench) -> None:
    bench.park(1)
    bench.park(2, headers={"x": object()})
    bench.park(3)
    bench.worker.run_once()
    assert sorted(bench.verdicts) == [(1, "ok"), (2, "unfit"), (3, "ok")]
    assert "type object cannot be kept exactly" in next(why for n, _, why in bench.answers if n == 2)


def test_no_more_are_under_way_than_the_window_allows(file: Path) -> None:
    bench = WorkerBench(f"sqlite:///{file}", window=3)
    for n in range(8):
        bench.park(n)
    for _ in range(3):
        bench.worker.run_once()
    assert len(bench.published) == 3
    bench.worker.published(bench.published[0])
    bench.worker.back(bench.published[1], delay=0.0)
    bench.worker.run_once()
    assert len(bench.published) == 5
    bench.worker.stop()


def test_a_publish_that_fails_is_counted_and_tried_again_until_it_is_given_up(
    bench: WorkerBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.park(1)
    with caplog.at_level(logging.ERROR, "redeliver_mw.limbo"):
        for _ in range(30):
            bench.worker.run_once()
            if bench.store.handed_out:
                bench.worker.failed(bench.published[-1], "no such queue")
            bench.clock.advance(10)
    assert bench.out() == ["copy-1"] * 5
    assert [r.message for r in caplog.records if "given up after 5 publishes" in r.message]
    sql(bench.url, "UPDATE dms_limbo_msg SET delivery_count=1")
    bench.worker.run_once()
    assert bench.out() == ["copy-1"] * 6


def test_what_came_back_uncounted_goes_out_again(bench: WorkerBench) -> None:
    bench.park(1)
    bench.worker.run_once()
    bench.worker.back(bench.published[0], delay=0.5)
    assert bench.worker.run_once() == 0.5  # it does not spin while a broker is away
    assert bench.out() == ["copy-1"]
    bench.clock.advance(0.5)
    bench.worker.run_once()
    assert bench.out() == ["copy-1", "copy-1"]
    assert sql(bench.url, "SELECT delivery_count FROM dms_limbo_msg") == [(1,)]


def test_signs_of_life_are_given_every_third_of_the_lease(bench: WorkerBench) -> None:
    beats = []
    for _ in range(4):
        bench.clock.advance(5)
        bench.worker.run_once()
        beats.append(sql(bench.url, "SELECT beat FROM redeliver_limbo_owner")[0][0])
    assert [later - beats[0] for later in beats] == [0, 1, 2, 3]


def test_while_the_database_fails_parking_is_refused_published_rows_are_remembered_and_one_line_is_logged(
    bench: WorkerBench, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.park(1)
    bench.worker.run_once()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with caplog.at_level(logging.WARNING, "redeliver_mw.limbo"):
        bench.worker.published(bench.published[0])
        for n in (2, 3):
            bench.park(n)
            assert 0 < bench.worker.run_once() <= 2
        assert bench.verdicts == [(1, "ok"), (2, "refused"), (3, "refused")]
        other.execute("ROLLBACK")
        other.close()
        bench.worker.run_once()
        bench.worker.run_once()
    assert count(bench.url) == 0
    assert bench.out() == ["copy-1"]
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

    worker = LimboWorker(store, publish, clock=clock)
    worker.park(Parking(message(1), 0.0), answer)
    for _ in range(20):
        worker.run_once()
        clock.advance(10)
    # at 0, 20, 40, 60, 80, 110 and 160 s: each failure is written at the next look, and delays double
    assert sql(f"sqlite:///{file}", "SELECT publishes, last_error FROM redeliver_limbo_msg") == [
        (7, "RuntimeError: no link")
    ]
    worker.stop()


def test_as_a_thread_it_parks_publishes_and_stops(url: str) -> None:
    """The clocks are the real ones: nothing here waits longer than it must."""
    store = Limbo(url, app="shop").open()
    done = threading.Semaphore(0)
    answered = threading.Semaphore(0)
    late: list[float] = []
    worker: LimboWorker

    def publish(row: Parked) -> None:
        late.append(time.time() - row.due)
        worker.published(row)
        done.release()

    worker = LimboWorker(store, publish)
    worker.start()
    due = time.time() + 0.2
    for n in range(200):
        worker.park(Parking(message(n), due), lambda verdict, why: answered.release() if verdict == "ok" else None)
    assert all(answered.acquire(timeout=30) for _ in range(200))
    assert all(done.acquire(timeout=30) for _ in range(200))
    assert min(late) >= 0
    assert worker.stop(30)
    assert count(url) == 0


def test_messages_are_parked_in_the_order_in_which_they_were_given(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an end by force, no place in the line of a key is there without those in front of it."""
    monkeypatch.setattr("redeliver_mw.limbo.worker.BATCH", 1)
    worker = LimboWorker(Limbo(f"sqlite:///{file}", app="shop").open(), lambda row: None)
    worker.start()
    answered: queue.SimpleQueue[int] = queue.SimpleQueue()
    for start in range(0, 60, 3):  # each time the thread waits for something to do
        for n in range(start, start + 3):
            worker.park(Parking(message(n), time.time() + 60), lambda verdict, why, n=n: answered.put(n))
        assert [answered.get(timeout=30) for _ in range(3)] == [start, start + 1, start + 2]
    assert worker.stop(30)


def test_stopping_brings_to_the_disk_what_was_given_before(file: Path) -> None:
    bench = WorkerBench(f"sqlite:///{file}")
    bench.park(1)
    bench.worker.run_once()
    bench.worker.published(bench.published[0])
    bench.park(2)
    bench.worker.stop()
    assert bench.verdicts == [(1, "ok"), (2, "ok")]
    assert sql(bench.url, "SELECT copy_id FROM redeliver_limbo_msg") == [("copy-2",)]


def test_stopping_waits_for_the_answer_to_what_is_being_published(url: str) -> None:
    publishing = threading.Event()
    rows: list[Parked] = []

    def publish(row: Parked) -> None:
        rows.append(row)
        publishing.set()

    worker = LimboWorker(Limbo(url, app="shop").open(), publish)
    worker.start()
    worker.park(Parking(message(1), time.time()), lambda verdict, why: None)
    assert publishing.wait(30)

    def confirm() -> None:
        while not worker._closing:  # an answer before that shows nothing
            time.sleep(0.001)
        worker.published(rows[0])

    confirming = threading.Thread(target=confirm)
    confirming.start()
    assert worker.stop(30)
    confirming.join()
    assert count(url) == 0


def test_stopping_does_not_wait_for_what_was_given_back_or_is_never_answered(file: Path) -> None:
    bench = WorkerBench(f"sqlite:///{file}")
    bench.worker.start()
    bench.park(1)
    bench.park(2)
    end = time.monotonic() + 30
    while len(bench.published) < 2:
        assert time.monotonic() < end
    bench.worker.back(bench.published[0], delay=3600.0)
    assert bench.worker.stop(1.0)
    assert count(bench.url) == 2


def test_what_is_parked_after_the_end_is_refused_at_once(file: Path) -> None:
    bench = WorkerBench(f"sqlite:///{file}")
    bench.worker.stop()
    bench.park(1)
    assert bench.answers == [(1, "refused", "the limbo is closed")]


def test_a_disk_that_is_full_for_messages_only_is_logged_once(
    bench: WorkerBench, caplog: pytest.LogCaptureFixture
) -> None:
    with bench.store._db.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 60")
    with caplog.at_level(logging.WARNING, "redeliver_mw.limbo"):
        for n in range(5):
            bench.park(n, body=b"x" * 1_000_000)
            bench.worker.run_once()
            bench.clock.advance(0.1)
    assert [verdict for _, verdict in bench.verdicts] == ["refused"] * 5
    assert len(caplog.records) == 1
    assert "its disk is full" in caplog.records[0].message
