# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what became of replayed messages, as an App writes it into a store that is there, away, or back again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, Reject
from redeliver_mw.errors import ConfigError
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.operations import Store
from redeliver_mw.operations.became import BecameCounts, became_of
from redeliver_mw.operations.control import control_source, known_apps
from redeliver_mw.runtime import operations_link
from redeliver_mw.testing import TestApp
from tests.cli.running import environment
from tests.cli.test_run_processes import eventually
from tests.operations.replaying import became, headers, sent
from tests.storage.postgres import Postgres

POLICY = RedeliveryPolicy(2, 1.0, ignore=[KeyError])


def handle(delivery: Delivery) -> None:
    """Do as the body says; a number is the count at which it is handled."""
    if delivery.text == "ignored":
        raise KeyError("nobody minds")
    if delivery.text == "refused":
        raise Reject("not here")
    if delivery.delivery_count < int(delivery.text):
        raise ValueError("not now")


@contextmanager
def app(url: str, **options: Any) -> Iterator[TestApp]:
    made = App("memory://", policy=POLICY, app_name="shop", operations=url, **options)
    made.handler("orders")(handle)
    with TestApp(made) as test:
        yield test


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == "redeliver_mw.operations"]


# -- what is written --------------------------------------------------------------------------------


@pytest.mark.parametrize("crash_safe", [False, True])
def test_the_end_of_each_replayed_message_is_written(store: Store, url: str, tmp_path: Path, crash_safe: bool) -> None:
    replay = sent(store, "first", "second", "dies", "refused", "ignored", "elsewhere")
    safe = {"crash_safe": True, "limbo": f"sqlite:///{tmp_path}/limbo2.db"} if crash_safe else {}
    with app(url, **safe) as test:
        test.send("orders", "1", headers(replay, "first"))
        test.send("orders", "2", headers(replay, "second"))
        test.send("orders", "9", headers(replay, "dies"))
        test.send("orders", "refused", headers(replay, "refused"))
        test.send("orders", "ignored", headers(replay, "ignored"))
        test.send("orders", "1", headers(replay, "unheard of"))
        test.send("orders", "1", headers("another", "first"))
        test.send("orders", "1", headers(replay, "elsewhere", "bills"))  # another source's: a handler forwarded it
        test.send("orders", "1")
        test.advance(1)
        assert became(store, replay)["second"] is None
        test.advance(5)
        assert became(store, replay) == {
            "first": "recovered",
            "second": "recovered",
            "dies": "failed again",
            "refused": "failed again",
            "ignored": None,
            "elsewhere": None,
        }
        assert len(test.dead_letters("orders")) == 2
    assert became_of(store, replay) == BecameCounts(recovered=2, failed_again=2, in_flight=2)


def test_a_replay_of_the_queue_is_handled_and_ignored_by_the_store(file: Path) -> None:
    with app(f"sqlite:///{file}") as test:
        test.send("orders", "9")
        test.advance(5)
        assert len(test.dead_letters("orders")) == 1
        test.replay("orders")
        test.advance(5)
        assert len(test.dead_letters("orders")) == 1


def test_what_waits_is_written_at_the_stop(file_store: Store, tmp_path: Path) -> None:
    replay = sent(file_store, "first")
    with app(f"sqlite:///{tmp_path}/store.db") as test:
        test.advance(0.5)
        test.send("orders", "1", headers(replay, "first"))
        assert became(file_store, replay) == {"first": None}
    assert became(file_store, replay) == {"first": "recovered"}


def test_only_replayed_messages_reach_the_link(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(operations_link.OperationsLink, "attempt", lambda self, attempt: seen.append(attempt))
    with app(f"sqlite:///{file}") as test:
        test.send("orders", "1")
        test.send("orders", "2")
        test.send("orders", "9")
        test.advance(10)
        assert seen == []
        test.send("orders", "1", headers("r", "l"))
    assert [one.past.lineage for one in seen] == ["l"]


# -- a store that is away ---------------------------------------------------------------------------


def test_a_url_that_is_no_stores_is_refused_at_the_start() -> None:
    for url in ("sqlite://", "redis://here", "nonsense"):
        with pytest.raises(ConfigError), app(url) as test:
            test.start()


def test_a_store_that_goes_away_delays_nothing_and_gets_all_when_it_is_back(
    file_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, gone = tmp_path / "store.db", tmp_path / "gone.db"
    replay = sent(file_store, *(f"l{n}" for n in range(20)))
    with app(f"sqlite:///{file}") as test:
        for n in range(5):
            test.send("orders", "1", headers(replay, f"l{n}"))
        test.advance(2)
        file.rename(gone)
        for n in range(5, 20):
            test.send("orders", "1", headers(replay, f"l{n}"))
            test.advance(1)
        test.advance(60)
        assert test.depth("orders") == 0
        assert len(warnings(caplog)) == 1
        assert warnings(caplog)[0].startswith(
            "the store of operations is away, and is tried again; consuming goes on: "
        )
        gone.rename(file)
        test.advance(31)
        assert len(warnings(caplog)) == 2
        assert warnings(caplog)[1].endswith("store.db: the store of operations is back")
        assert set(became(file_store, replay).values()) == {"recovered"}
        control_source(file_store, "shop", "pause", "orders", who="ada@host")
        test.advance(2)
        assert test.app.health()["sources"]["queue:orders"]["paused_by"] == "ada@host"


def test_an_app_starts_without_its_store_and_finds_it_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "later"
    with app(f"sqlite:///{folder}/store.db") as test:
        test.send("orders", "1", headers("r", "l"))
        assert test.depth("orders") == 0
        assert len(warnings(caplog)) == 1
        folder.mkdir()
        test.advance(31)
        assert len(warnings(caplog)) == 2
        with Store(f"sqlite:///{folder}/store.db", create=False) as store:
            control_source(store, "shop", "pause", "orders", who="ada@host")
        test.advance(2)
        assert test.app.health()["sources"]["queue:orders"]["paused_by"] == "ada@host"


def test_a_server_that_hangs_or_dies_delays_neither_messages_nor_a_start_nor_a_stop(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    url = postgres.new_database()
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker("hanging", broker)
    handled = threading.Semaphore(0)

    def started() -> App:
        made = App("memory://hanging", app_name="shop", operations=url)
        made.handler("orders")(lambda delivery: handled.release())
        made.start()
        return made

    with Store(url) as store:
        replay = sent(store, "hangs", "dies")
        one = started()
        try:
            assert eventually(lambda: known_apps(store) == ["shop"])
            postgres.pause()
            broker.send("orders", b"1", headers(replay, "hangs"))
            assert handled.acquire(timeout=10)
            other = started()
            other.stop()
            postgres.resume()
            assert eventually(lambda: became(store, replay)["hangs"] == "recovered")
            caplog.clear()  # the other App has said that the store is away, too
            postgres.kill()
            broker.send("orders", b"1", headers(replay, "dies"))
            assert handled.acquire(timeout=10)
            assert eventually(lambda: any("is away" in line for line in warnings(caplog)))
        finally:
            postgres.resume()
            postgres.start()
        assert eventually(lambda: became(store, replay)["dies"] == "recovered")
        back = "the store of operations is back"
        assert eventually(lambda: any(line.endswith(back) for line in warnings(caplog)))
        one.stop()


def test_the_oldest_outcomes_are_dropped_when_too_many_wait_and_this_is_said_once(
    file_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations_link, "MOST_WAITING", 10)
    file, gone = tmp_path / "store.db", tmp_path / "gone.db"
    replay = sent(file_store, *(f"l{n:02}" for n in range(25)))
    with app(f"sqlite:///{file}") as test:
        test.advance(1)
        file.rename(gone)
        for n in range(25):
            test.send("orders", "1", headers(replay, f"l{n:02}"))
        test.advance(200)
        gone.rename(file)
        test.advance(31)
        found = became(file_store, replay)
        assert [lineage for lineage, what in sorted(found.items()) if what] == [f"l{n}" for n in range(15, 25)]
    told = warnings(caplog)
    assert [line for line in told if "the oldest are dropped" in line] == [
        f"sqlite:///{file}: more than 10 outcomes of replayed messages wait for the store; the oldest are dropped"
    ]
    assert told[-1].endswith("is back; 15 outcomes of replayed messages were dropped meanwhile")
    assert len(told) == 3


def test_a_store_that_is_locked_blocks_no_message_and_no_wish(file_store: Store, tmp_path: Path) -> None:
    """The App has threads: another program holds the lock for writing while messages are handled and a wish is read."""
    file = tmp_path / "store.db"
    replay = sent(file_store, *(f"l{n}" for n in range(50)))
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker("linked", broker)
    handled = threading.Semaphore(0)
    made = App("memory://linked", app_name="shop", operations=f"sqlite:///{file}")
    made.handler("orders")(lambda delivery: handled.release())
    with made:
        assert eventually(lambda: known_apps(file_store) == ["shop"])
        control_source(file_store, "shop", "pause", "orders", who="ada@host")
        holder = sqlite3.connect(file, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert eventually(lambda: made.health()["sources"]["queue:orders"]["paused_by"] == "ada@host")
        holder.execute("COMMIT")
        control_source(file_store, "shop", "resume", "orders", who="ada@host")
        assert eventually(lambda: not made.health()["sources"]["queue:orders"]["paused"])
        holder.execute("BEGIN IMMEDIATE")
        for n in range(50):
            broker.send("orders", b"1", headers(replay, f"l{n}"))
        assert all(handled.acquire(timeout=10) for _ in range(50))
        holder.execute("COMMIT")
        assert eventually(lambda: set(became(file_store, replay).values()) == {"recovered"})
        holder.close()


# -- a process that is killed -----------------------------------------------------------------------


KILLED = """
import os, signal, sys
from redeliver_mw import App, connect
from tests.operations.replaying import headers

app = App("memory://", declare="all", operations=sys.argv[1], app_name="shop")

@app.handler("orders")
def on_order(delivery):
    print("handled", flush=True)

with app, connect("memory://") as session:
    session.publish("orders", b"1", headers=headers(sys.argv[2], "first"))
    sys.stdin.read()
"""


def test_a_kill_between_handling_and_writing_leaves_the_outcome_unknown(file_store: Store, tmp_path: Path) -> None:
    """The message is handled, and its replay never learns of it: in flight first, unknown in the end."""
    file = tmp_path / "store.db"
    replay = sent(file_store, "first")
    holder = sqlite3.connect(file, isolation_level=None)
    command = [sys.executable, "-c", KILLED, f"sqlite:///{file}", replay]
    made = environment(tmp_path)
    with subprocess.Popen(
        command, cwd=tmp_path, env=made, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "handled\n"
        holder.execute("BEGIN IMMEDIATE")  # nothing can be written any more
        process.send_signal(signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
        holder.execute("COMMIT")
    holder.close()
    assert became(file_store, replay) == {"first": None}
    assert became_of(file_store, replay) == BecameCounts(in_flight=1)
    later = time.time_ns() // 1000 + 2 * 86_400_000_000
    assert became_of(file_store, replay, at_us=later) == BecameCounts(unknown=1)
    assert os.path.exists(file)
