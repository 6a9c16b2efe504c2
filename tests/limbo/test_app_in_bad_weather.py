# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests an App whose limbo fails: its source pauses, nothing is settled, one line is logged, and it recovers by itself.

The databases and what happens to them are real; the broker is in memory, and the clock is moved by hand.
"""

from __future__ import annotations

import functools
import logging
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.crash_safety import store
from redeliver_mw.errors import ConfigError
from redeliver_mw.limbo import Limbo, service
from redeliver_mw.testing import TestApp
from tests.disks import fill, small_disk_at
from tests.faults.load import until
from tests.limbo.messages import count, sql
from tests.storage.postgres import Postgres

FAILING, PREFETCH = 30, 10
DELAY = 60.0  # seconds; no hold lasts that long
TRIED = 10.0  # seconds in which whoever is refused has been so three times


class Weather(ABC):
    """Begins some trouble with a database, and ends it. What is logged about the trouble contains `says`."""

    says: str
    url: str
    readable = False  # what is due is published all the same, and removed later
    server: Postgres | None = None

    def __init__(self, folder: Path) -> None:
        self.file = folder / "limbo.db"
        self.url = f"sqlite:///{self.file}"

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...


class Locked(Weather):
    """Locks the database as another program does that has begun to write, and does not come to an end."""

    says = "another program holds it locked"
    readable = True

    def begin(self) -> None:
        self._other = sqlite3.connect(self.file, isolation_level=None)
        self._other.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self._other.execute("ROLLBACK")
        self._other.close()


class Full(Weather):
    """Fills the disk with other things."""

    says = "disk"
    readable = True

    def begin(self) -> None:
        with suppress(OSError):
            fill(self.file.parent / "ballast")

    def end(self) -> None:
        (self.file.parent / "ballast").unlink()


class Moved(Weather):
    """Renames the folder of the database for a while."""

    says = "moved or deleted"

    def begin(self) -> None:
        self._away = self.file.parent.with_name("elsewhere")
        self.file.parent.rename(self._away)

    def end(self) -> None:
        self._away.rename(self.file.parent)


class Restored(Weather):
    """Deletes the database, and puts back a copy that was made before."""

    says = "moved or deleted"

    def begin(self) -> None:
        with sqlite3.connect(self.file) as live, sqlite3.connect(f"{self.file}.saved") as saved:
            live.backup(saved)
        live.close()
        saved.close()
        for name in ("", "-wal", "-shm"):
            self.file.with_name(f"limbo.db{name}").unlink(missing_ok=True)

    def end(self) -> None:
        shutil.move(f"{self.file}.saved", self.file)


class Damaged(Restored):
    """Writes over the pages of the database, and puts back a copy."""

    says = "no SQLite database"

    def begin(self) -> None:
        super().begin()
        self.file.write_bytes(b"\xaa" * 65536)


class OnPostgres(Weather):
    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.url = server.new_database()


class Killed(OnPostgres):
    """Kills the server, and starts it again."""

    says = "limbo"

    def begin(self) -> None:
        self.server.kill()

    def end(self) -> None:
        self.server.start()  # which does nothing where it runs


class ReadOnly(OnPostgres):
    """Makes the server answer as a server does that has become another one's copy."""

    says = "may not be written to"
    readable = True

    def begin(self) -> None:
        self._let("on")

    def end(self) -> None:
        self._let("off")

    def _let(self, word: str) -> None:
        import psycopg

        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only TO off")
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only TO {word}".encode())
            connection.execute("SELECT pg_reload_conf()")
        until(lambda: self._is() == word, 10, "the server does not read its settings again")

    def _is(self) -> str:
        """Return the setting as a new connection is told it: by then the server has told all other connections, too."""
        import psycopg

        with psycopg.connect(self.server.dsn("postgres")) as connection:
            row = connection.execute("SHOW default_transaction_read_only").fetchone()
        return row[0] if row else ""


WEATHERS = [Locked, Full, Moved, Restored, Damaged, Killed, ReadOnly]


@pytest.fixture(params=WEATHERS, ids=lambda kind: kind.__name__.lower())
def weather(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Weather]:
    kind: Any = request.param
    with ExitStack() as stack:
        if issubclass(kind, OnPostgres):
            found = kind(request.getfixturevalue("postgres"))
        elif kind is Full:
            found = kind(stack.enter_context(small_disk_at(tmp_path / "disk", "2m")))
        else:
            (tmp_path / "folder").mkdir()
            found = kind(tmp_path / "folder")
        yield found
        if found.server is not None:
            found.end()


class Shop:
    """Runs an App that parks each message whose handler fails, once. `send` and `advance` are those of `test`."""

    def __init__(self, url: str, *, crash_safe: bool = False) -> None:
        self.done: Counter[bytes] = Counter()
        app = App(
            "memory://",
            policy=RedeliveryPolicy(5, DELAY, "queue:dead"),
            limbo=url,
            delay="park",
            app_name="shop",
            prefetch=PREFETCH,
            crash_safe=crash_safe,
        )
        app.handler("orders")(self.handle)
        self.test = TestApp(app)

    def handle(self, delivery: Delivery) -> None:
        if delivery.body.startswith(b"failing") and delivery.delivery_count == 1:
            raise ConnectionError("the warehouse does not answer")
        self.done[delivery.body] += 1

    @property
    def paused(self) -> str:
        return self.test.app.health()["sources"]["queue:orders"]["why_paused"] or ""

    @property
    def on_the_broker(self) -> int:
        return len(self.test.broker.everything())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no program wait long for a lock."""
    monkeypatch.setattr(service, "Limbo", functools.partial(Limbo, busy_timeout=0.02))
    monkeypatch.setattr(store, "LedgerStore", functools.partial(store.LedgerStore, busy_timeout=0.02))


@pytest.fixture
def shop(weather: Weather) -> Iterator[Shop]:
    shop = Shop(weather.url)
    with shop.test:
        yield shop


def said(log: pytest.LogCaptureFixture, level: int) -> list[str]:
    records = [record for record in log.records if record.name != "redeliver_mw.failures"]
    return [record.getMessage() for record in records if record.levelno == level]


def test_it_stops_consuming_settles_nothing_logs_once_and_recovers_by_itself(
    weather: Weather, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    weather.begin()
    for n in range(FAILING):
        shop.test.send("orders", b"failing %d" % n)
    shop.test.advance(TRIED)
    shop.test.send("orders", b"well")
    assert weather.says in shop.paused
    assert (shop.on_the_broker, shop.done) == (FAILING + 1, {})
    shop.test.advance(8 * DELAY)
    errors = said(caplog, logging.ERROR)
    assert [sum("is paused" in line for line in errors), sum("is paused" not in line for line in errors)] == [1, 1]
    assert all(weather.says in line for line in errors)
    weather.end()
    shop.test.advance(3 * DELAY)
    assert not shop.paused
    assert shop.done.keys() == {b"well", *(b"failing %d" % n for n in range(FAILING))}
    assert shop.on_the_broker == 0
    assert count(weather.url) == 0
    assert said(caplog, logging.ERROR) == errors


def test_what_is_due_meanwhile_is_published_afterwards_once(
    weather: Weather, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(FAILING):
        shop.test.send("orders", b"failing %d" % n)
    shop.test.advance(TRIED)
    assert (shop.on_the_broker, count(weather.url)) == (0, FAILING)
    weather.begin()
    shop.test.advance(3 * DELAY)
    healed = {b"failing %d" % n: 1 for n in range(FAILING)}
    assert (shop.on_the_broker, shop.done) == (0, healed if weather.readable else {})
    shop.test.send("orders", b"well")
    assert shop.done[b"well"] == 1  # nothing of it is to be parked
    assert len(said(caplog, logging.ERROR)) == 1
    weather.end()
    shop.test.advance(DELAY)
    assert shop.done == {b"well": 1} | healed
    assert (shop.on_the_broker, count(weather.url)) == (0, 0)
    assert [len(said(caplog, level)) for level in (logging.ERROR, logging.WARNING)] == [1, 1]


def test_where_counts_survive_no_handler_runs_meanwhile_and_all_go_on_afterwards(
    weather: Weather, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(weather.url, crash_safe=True)
    with shop.test:
        weather.begin()
        for n in range(FAILING):
            shop.test.send("orders", b"well %d" % n)
        shop.test.advance(DELAY)
        assert (shop.on_the_broker, shop.done) == (FAILING, {})
        assert weather.says in shop.paused
        errors = said(caplog, logging.ERROR)
        assert sum("No message is handed to a handler" in line for line in errors) == 1
        assert len(errors) <= 2  # the other is about what is parked
        weather.end()
        shop.test.advance(DELAY)
        assert shop.done == {b"well %d" % n: 1 for n in range(FAILING)}
        assert (shop.on_the_broker, shop.paused) == (0, "")
        assert said(caplog, logging.ERROR) == errors


@pytest.mark.parametrize("crash_safe", [False, True])
def test_a_database_of_a_newer_release_is_refused_before_anything_is_consumed(tmp_path: Path, crash_safe: bool) -> None:
    url = f"sqlite:///{tmp_path}/limbo.db"
    with Limbo(url, app="shop"):
        pass
    sql(url, "UPDATE redeliver_limbo_version SET version = 1000")
    shop = Shop(url, crash_safe=crash_safe)
    shop.test.broker.declare("orders")
    shop.test.broker.send("orders", b"well")
    with pytest.raises(ConfigError, match="version 1000"):
        shop.test.start()
    assert (shop.on_the_broker, shop.done) == (1, {})


def test_if_the_journals_disk_is_full_the_app_continues_without_it_and_logs_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk_at(tmp_path / "disk") as disk:
        app = App("memory://", policy=RedeliveryPolicy(2, 1.0, "queue:dead"), journal=disk / "journal")
        done: list[bytes] = []

        @app.handler("orders")
        def handle(delivery: Delivery) -> None:
            if delivery.body.startswith(b"failing"):
                raise ConnectionError("x" * 5000)
            done.append(delivery.body)

        with TestApp(app) as test:
            with suppress(OSError):
                fill(disk / "ballast")
            for n in range(FAILING):
                test.send("orders", b"failing %d" % n)
                test.send("orders", b"well %d" % n)
            test.advance(10.0)
            assert (len(done), len(test.dead_letters("orders"))) == (FAILING, FAILING)
            journal = app._engine._recorder._journal
            assert not journal.flush(1.0)
            assert len(said(caplog, logging.ERROR)) == 1
            (disk / "ballast").unlink()
