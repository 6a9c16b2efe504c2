# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests counts that survive a crash, on the memory broker, a real database file, and a clock moved by hand."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.clock import SystemClock
from redeliver_mw.crash_safety import rows, store
from redeliver_mw.crash_safety.store import ALONE
from redeliver_mw.errors import ConfigError
from redeliver_mw.failure import Failure
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.memory import Faults, MemoryAdapter, MemoryBroker
from redeliver_mw.message import Attempt, Destination, Past
from redeliver_mw.redelivery.copies import Transfer
from redeliver_mw.redelivery.ledger import LedgerEntry
from redeliver_mw.storage.schema import runs
from redeliver_mw.testing import TestApp
from tests.faults.load import until

KINDS = ["rabbitmq", "activemq", "artemis"]


class Killed(BaseException):
    """Ends the handler whose process is gone."""


class Process:
    """Runs one process after the other, each an App on the same broker, clock and file."""

    def __init__(self, folder: Path, kind: str = "rabbitmq", **options: Any) -> None:
        self.file, self.kind, self.options = folder / "limbo.db", kind, options
        self.policy = options.pop("policy", RedeliveryPolicy(3, 1.0, "queue:dead"))
        self.kills: Callable[[Delivery], bool] = lambda delivery: b"poison" in delivery.body
        self.runs: list[tuple[bytes, int]] = []
        self.done: list[bytes] = []
        self.records: list[AttemptRecord] = []
        self.faults = Faults()
        self.test: TestApp
        self.dead = True
        self._first: TestApp | None = None

    def start(self) -> TestApp:
        app = App(
            f"memory://?personality={self.kind}",
            policy=self.policy,
            limbo=f"sqlite:///{self.file}",
            crash_safe=True,
            app_name="orders",
            **self.options,
        )
        app.handler("orders")(self.handle)
        app.on_attempt(lambda record: None if self.dead else self.records.append(record))
        self.test = TestApp(app, faults=self.faults)
        if self._first is None:
            self._first = self.test
        self.test.broker, self.test.clock = self._first.broker, self._first.clock
        self.dead = False
        return self.test.start()

    def handle(self, delivery: Delivery) -> None:
        self.runs.append((delivery.body, delivery.delivery_count))
        if self.kills(delivery):
            self.kill()
            raise Killed
        if b"failing" in delivery.body:
            raise ValueError("no")
        self.done.append(delivery.body)

    def kill(self) -> None:
        """Do what SIGKILL does: nobody writes anything any more, and the broker takes back what was unsettled."""
        engine = self.test.app._engine
        assert engine is not None
        assert engine.runner is not None
        assert engine._gate is not None
        engine.runner.stopping = True
        engine._gate._stopped = engine._gate._closed = True
        engine._gate._lines.abandon()
        engine.adapter.close(0.0)
        self.dead = True

    def live(self, seconds: float = 100.0, lives: int = 20) -> int:
        """Start the process again whenever it is dead, and let time pass; return how often it was started."""
        starts = 0
        for _ in range(lives):
            if self.dead:
                self.start()
                starts += 1
            self.test.clock.advance(seconds)
            if not self.dead:
                break
        return starts

    def sql(self, statement: str) -> list[Any]:
        with sqlite3.connect(self.file) as connection:
            return connection.execute(statement).fetchall()


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_kills_its_process_is_counted_and_its_neighbours_are_not(tmp_path: Path, kind: str) -> None:
    process = Process(tmp_path, kind)
    process.start()
    for n in range(10):
        process.test.broker.send("orders", b"poison" if n == 4 else b"fine %d" % n, message_id=f"m{n}")
    assert process.live() <= 8
    (letter,) = process.test.dead_letters("orders")
    assert letter.body == b"poison"
    assert letter.headers["redeliver_reason"] == "crashed"
    assert letter.headers["redeliver_failures"] == "3"
    assert letter.headers["redeliver_error_type"] == "ProcessDied"
    assert {body for body, count in process.runs if body != b"poison" and count != 1} == set()
    assert sorted(set(process.done)) == sorted(b"fine %d" % n for n in range(10) if n != 4)
    assert process.test.depth("orders") == 0
    process.test.stop()
    # What is left was settled by a process that died before it could write so, or forget it: bare marks, or done.
    left = "failures > 0 OR (rest IS NOT NULL AND done = 0)"
    assert process.sql(f"SELECT * FROM redeliver_limbo_ledger WHERE {left}") == []


@pytest.mark.parametrize("kind", KINDS)
def test_failures_and_the_delay_after_them_survive_the_process(tmp_path: Path, kind: str) -> None:
    process = Process(tmp_path, kind, policy=RedeliveryPolicy(3, 5.0, "queue:dead"), delay="hold")
    process.start().send("orders", b"failing", message_id="s")
    process.test.advance(1.0)
    process.kill()
    process.start()
    process.test.advance(3.0)
    assert process.runs == [(b"failing", 1)]
    process.test.advance(2.5)
    assert process.runs == [(b"failing", 1), (b"failing", 2)]
    process.kill()
    process.start()
    process.test.advance(6.0)
    (letter,) = process.test.dead_letters("orders")
    assert (letter.headers["redeliver_failures"], letter.headers["redeliver_reason"]) == ("3", "exhausted")
    assert len(process.runs) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_suspects_run_one_at_a_time_each_marked_before_it_runs(tmp_path: Path, kind: str) -> None:
    process = Process(tmp_path, kind)
    seen: list[tuple[bytes, list[int], int]] = []

    def kills(delivery: Delivery) -> bool:
        marks = [mark for (mark,) in process.sql("SELECT mark FROM redeliver_limbo_ledger WHERE mark > 0")]
        own = "JOIN redeliver_limbo_run USING (run)"
        batches = len(process.sql(f"SELECT 1 FROM redeliver_limbo_batch {own} WHERE run != '{dead}'"))
        seen.append((delivery.body, marks, batches))
        return delivery.body == b"m2" and not dead

    process.kills = kills
    dead = ""
    process.start()
    for n in range(5):
        process.test.broker.send("orders", b"m%d" % n, message_id=f"m{n}")
    process.test.clock.run_until_idle()
    assert [(marks, batches) for _, marks, batches in seen] == [([], 1)] * 3
    ((dead,),) = process.sql("SELECT run FROM redeliver_limbo_run")
    seen.clear()
    process.live()
    assert {body for body, _, _ in seen} >= {b"m2", b"m3", b"m4"}
    assert [(marks, batches) for _, marks, batches in seen] == [([ALONE], 0)] * len(seen)
    assert process.runs.count((b"m2", 1)) == 2


def test_copies_that_are_confirmed_are_not_sent_again_by_the_next_process(tmp_path: Path) -> None:
    process = Process(tmp_path, policy=RedeliveryPolicy(1, 0.0, ["queue:dead", "queue:audit"]))
    process.faults.refuse("audit", times=None)
    process.start().send("orders", b"failing", message_id="s")
    process.test.advance(0.2)
    assert (process.test.depth("dead"), process.test.depth("audit")) == (1, 0)
    process.kill()
    process.faults.clear()
    process.start()
    process.test.advance(60.0)
    assert (process.test.depth("dead"), process.test.depth("audit"), process.test.depth("orders")) == (1, 1, 0)
    assert process.runs == [(b"failing", 1)]
    assert [record.outcome for record in process.records] == ["dead_lettered"]


def test_what_was_moved_and_not_settled_is_settled_by_the_next_process_at_once(tmp_path: Path) -> None:
    process = Process(tmp_path, policy=RedeliveryPolicy(1, 0.0, "queue:dead"))
    process.start()
    process.faults.drop_settle()
    process.test.send("orders", b"failing", message_id="s")
    process.kill()
    assert process.test.depth("orders") == 1
    process.start()
    process.test.advance(10.0)
    assert (process.test.depth("dead"), process.test.depth("orders")) == (1, 0)
    assert process.runs == [(b"failing", 1)]


def test_the_attempt_that_killed_the_process_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    process = Process(tmp_path, policy=RedeliveryPolicy(2, 1.0, "queue:dead"))
    process.start().send("orders", b"poison", message_id="p")
    process.live()
    told = [(r.outcome, r.reason, r.error_type, r.delivery_count) for r in process.records]
    assert told == [("redelivered", "crashed", "ProcessDied", 1), ("dead_lettered", "crashed", "ProcessDied", 2)]
    assert process.runs == [(b"poison", 1)] * 2 + [(b"poison", 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_without_an_id_is_exchanged_for_a_copy_that_has_one(tmp_path: Path, kind: str) -> None:
    process = Process(tmp_path, kind)
    process.start()
    for body in (b"fine", b"poison", b"well"):
        process.test.broker.send("orders", body)
    process.live()
    (letter,) = process.test.dead_letters("orders")
    assert (letter.body, letter.headers["redeliver_reason"]) == (b"poison", "crashed")
    assert sorted(set(process.done)) == [b"fine", b"well"]
    assert {count for body, count in process.runs if body != b"poison"} == {1}


def test_while_the_database_is_locked_no_handler_runs_and_afterwards_all_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LedgerStore", functools.partial(store.LedgerStore, busy_timeout=0.02))
    process = Process(tmp_path)
    process.start()
    other = sqlite3.connect(process.file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for n in range(3):
        process.test.send("orders", b"fine %d" % n, message_id=f"m{n}")
    process.test.advance(5.0)
    assert process.runs == []
    assert "locked" in process.test.app.health()["sources"]["queue:orders"]["why_paused"]
    assert len([r for r in caplog.records if "No message is handed to a handler" in r.message]) == 1
    other.execute("ROLLBACK")
    other.close()
    process.test.advance(5.0)
    assert process.done == [b"fine 0", b"fine 1", b"fine 2"]
    assert process.test.app.health()["sources"]["queue:orders"]["why_paused"] is None


def test_what_is_settled_leaves_nothing_in_the_database(tmp_path: Path) -> None:
    process = Process(tmp_path)
    process.start()
    for n in range(20):
        process.test.send("orders", b"failing" if n % 4 == 0 else b"fine", message_id=f"m{n}")
    process.test.advance(100.0)
    assert len(process.test.dead_letters("orders")) == 5
    for table in ("ledger", "batch"):
        assert process.sql(f"SELECT * FROM redeliver_limbo_{table}") == []


def test_what_comes_later_does_not_wait_for_the_lines_of_earlier_ones_to_grow_old(tmp_path: Path) -> None:
    process = Process(tmp_path, policy=RedeliveryPolicy(3, 1000.0, "queue:dead"))
    test = process.start()
    test.send("orders", b"failing", message_id="s")  # leaves by a copy: its line is of no use after a while
    test.advance(0.5)
    test.send("orders", b"fine", message_id="f")
    assert process.done == [b"fine"]


def test_the_ledger_is_bounded_and_the_oldest_line_goes_first(tmp_path: Path) -> None:
    lines = store.LedgerStore(f"sqlite:///{tmp_path}/limbo.db", broker="b")
    lines.open(0)
    entry = LedgerEntry("x", Past(failures=2), b"")
    for n in range(30):
        said = {"source": "queue:orders", "message": f"m{n}", "mark": store.NONE, "changed_us": n}
        with lines.writing() as connection:
            lines.write(connection, store.Changes(lines=[rows.line_of(entry) | said]))
    lines.prune(["queue:orders"], 10, 0)
    with lines.writing() as connection:
        kept = lines.find(connection, "queue:orders", [f"m{n}" for n in range(30)])
    assert sorted(kept) == sorted(f"m{n}" for n in range(20, 30))
    lines.close()


def test_a_program_on_another_host_is_dead_when_it_was_silent_for_its_lease(tmp_path: Path) -> None:
    here = store.LedgerStore(f"sqlite:///{tmp_path}/limbo.db", broker="b")
    here.open(0)
    with here.writing() as connection:
        for run in ("silent", "alive"):
            connection.execute(runs.insert().values(run=run, host="elsewhere", pid=1, born="", beat=1, beat_us=0))

    def asked(at: float) -> tuple[bool | None, bool | None]:
        with here.writing() as connection:
            found = here.dead(connection, ["silent", "alive"], at)
            connection.execute(runs.update().where(runs.c.run == "alive").values(beat=runs.c.beat + 1))
        return found["silent"], found["alive"]

    assert asked(100.0) == (None, None)
    assert asked(100.0 + store.LEASE - 0.1) == (None, False)
    assert asked(100.0 + store.LEASE) == (True, False)
    with here.writing() as connection:
        assert here.dead(connection, ["never heard of"], 0.0)["never heard of"] is True
    here.close()


@pytest.mark.parametrize(
    "entry",
    [
        LedgerEntry("x", Past(), b"d"),
        LedgerEntry(
            "x",
            Past(
                "x",
                1,
                2,
                3,
                4,
                5,
                6,
                7,
                8,
                "E: é\ud800",
                "r",
                {"a": "b"},
                original={"redeliver_x": "y"},
                history=(Attempt(1, "f" * 16, "here", 2.5), Attempt(2, "f" * 16, "there", None)),
            ),
            b"d",
        ),
        LedgerEntry("x", Past(failures=1), b"d", done=True),
        LedgerEntry(
            "x",
            Past(failures=1),
            b"d",
            Transfer(
                "dead_lettered",
                (Destination("a"), Destination("b", "topic", "c")),
                1.5,
                True,
                "exhausted",
                "why",
                7,
                Failure("E", "m", "f" * 16, [], ""),
                3.0,
                9,
            ),
            frozenset({"1", "2"}),
            apart=True,
            doubted=True,
            failure=Failure("E", "m", "f" * 16, [], ""),
        ),
    ],
)
def test_an_entry_comes_back_from_its_line_as_it_was(url: str, entry: LedgerEntry) -> None:
    lines = store.LedgerStore(url, broker="b")
    lines.open(0)
    said = {"source": "queue:orders", "message": "m", "mark": store.NONE, "changed_us": 0}
    with lines.writing() as connection:
        lines.write(connection, store.Changes(lines=[rows.line_of(entry) | said]))
        line = lines.find(connection, "queue:orders", ["m"])["m"]
    lines.close()
    assert rows.entry_of(line, "y", Past(), b"other") == entry


class Live:
    """Runs Apps with threads and clocks of their own, on one memory broker and one ledger."""

    def __init__(self, url: str) -> None:
        self.url, self.broker = url, MemoryBroker("rabbitmq")
        self.broker.declare("orders")
        self.lock = threading.Lock()
        self.done: list[bytes] = []
        self.hung = threading.Event()
        self.over = threading.Event()

    def app(self, poison: bool) -> App:
        app = App(
            "memory://",
            policy=RedeliveryPolicy(1, 0.0, "queue:dead"),
            limbo=self.url,
            crash_safe=True,
            app_name="orders",
            prefetch=10,
        )

        @app.handler("orders")
        def handle(delivery: Delivery) -> None:
            if poison and delivery.body == b"poison":
                self.hung.set()
                assert self.over.wait(30)
                raise Killed
            with self.lock:
                self.done.append(delivery.body)

        app._start(MemoryAdapter(self.broker), SystemClock())
        return app

    def die(self, app: App) -> None:
        """End an App as if its process was killed.

        Nobody writes for the App any more, and the broker takes back the messages that it had.
        """
        engine = app._engine
        assert engine is not None
        assert engine.runner is not None
        assert engine._gate is not None
        engine.runner.stopping = True
        engine._gate._stopped = engine._gate._closed = True
        engine._gate._lines.abandon()
        engine.adapter.close(0.0)

    def close_limbo(self, app: App) -> None:
        """Close the limbo of a killed App.

        The limbo's thread did not die with the App, and would log while later tests listen.
        """
        engine = app._engine
        assert engine is not None
        assert engine._limbo is not None
        engine._limbo.close(10.0)


def test_two_apps_on_one_queue_and_one_ledger_count_for_each_other(url: str) -> None:
    world = Live(url)
    for n in range(20):
        world.broker.send("orders", b"poison" if n == 3 else b"fine %d" % n, message_id=f"m{n}")
    first = world.app(poison=True)
    second = world.app(poison=True)
    assert world.hung.wait(10)
    until(lambda: len(world.done) >= 10, 20, "the other one does nothing")
    holders = [first, second]
    for app in holders:  # one of them has the poison in hand, together with what is behind it
        world.die(app)
    world.hung.clear()
    third = world.app(poison=True)
    assert world.hung.wait(10)  # again, and alone this time
    world.die(third)
    last = world.app(poison=False)
    until(lambda: world.broker.depth("dead") == 1, 20, "the culprit is not counted")
    until(lambda: len(set(world.done)) == 19, 20, "neighbours are missing")
    world.over.set()
    last.stop()
    for app in (first, second, third):
        world.close_limbo(app)
    assert b"poison" not in world.done
    assert [letter.headers["redeliver_reason"] for letter in world.broker.peek("dead")] == ["crashed"]


def test_without_a_limbo_it_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="crash_safe=True needs a limbo") as refused:
        App("memory://", crash_safe=True)
    assert "sqlite:///" in refused.value.cure
