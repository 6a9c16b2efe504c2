# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a database that is absent, damaged, full, locked, read-only or deleted.

Each gives an error with its cure, and leaves nothing half-written.
"""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from redeliver_mw.errors import ConfigError, LimboError, MissingExtra, RedeliverError
from redeliver_mw.limbo import Limbo, Parking
from redeliver_mw.memory.clock import ManualClock
from tests.limbo.messages import count, crash, limbo, message, parkings, sql
from tests.storage.postgres import Postgres

REPOSITORY = Path(__file__).resolve().parents[2]


def refusal(url: str) -> RedeliverError:
    with pytest.raises(RedeliverError) as refused:
        limbo(url, ManualClock()).open()
    assert refused.value.where
    assert refused.value.cure
    return refused.value


@contextmanager
def as_nobody() -> Iterator[None]:
    """Let root, who may write everywhere, be for a while a user who may not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes, which is to SQLite what a full disk is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize(
    "url", ["limbo.db", "mysql://h/x", "oracle://h/x", "sqlite+aiosqlite:///x.db", "", "postgresql://u:p@h:port/x"]
)
def test_a_url_that_names_no_database_of_ours_is_your_input(url: str) -> None:
    with pytest.raises(ConfigError, match=r"Write sqlite:///limbo\.db or postgresql://"):
        Limbo(url, app="shop")


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        Limbo("mysql://me:hunter2@h/x", app="shop")
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_not_there_is_the_worlds_fault() -> None:
    pytest.importorskip("psycopg")
    error = refusal("postgresql://me:hunter2@127.0.0.1:9/x")
    assert (type(error), error.exit_code) == (LimboError, 1)
    assert "cannot be reached" in str(error)
    assert "hunter2" not in str(error)


def test_a_driver_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"redeliver-mw\[postgres\]"):
        limbo("postgresql://h/x", ManualClock()).open()


def test_a_file_that_is_no_database_is_refused_and_left_alone(file: Path) -> None:
    file.write_bytes(b"a shopping list, " * 100)
    error = refusal(f"sqlite:///{file}")
    assert (type(error), str(file) in error.where) == (ConfigError, True)
    assert "no SQLite database" in str(error)
    assert file.read_bytes() == b"a shopping list, " * 100


def test_a_limbo_in_a_missing_folder_cannot_be_opened(tmp_path: Path) -> None:
    assert "cannot be opened" in str(refusal(f"sqlite:///{tmp_path}/no/such/limbo.db"))


def test_a_damaged_file_is_reported_with_how_to_save_what_is_in_it(file: Path) -> None:
    clock = ManualClock()
    store = limbo(f"sqlite:///{file}", clock).open()
    store.park(parkings(range(200), clock.now().wall))
    store.close()
    content = bytearray(file.read_bytes())
    for at in range(4096, len(content), 4096):
        content[at : at + 512] = b"\xaa" * 512
    file.write_bytes(content)
    with pytest.raises(LimboError, match=r"damaged.*\.recover"):
        limbo(f"sqlite:///{file}", clock).open().due()


def test_a_locked_database_refuses_and_recovers_by_itself(file: Path) -> None:
    clock = ManualClock()
    with limbo(f"sqlite:///{file}", clock) as store:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LimboError, match="another program holds it locked"):
            store.park(parkings([1], clock.now().wall))
        assert store.due() == []  # readers wait for nobody
        other.execute("ROLLBACK")
        other.close()
        store.park(parkings([1], clock.now().wall))
        assert len(store.due()) == 1


def test_a_new_file_that_another_program_writes_to_is_waited_for(file: Path) -> None:
    """SQLite itself refuses at once where a file is about to get its write-ahead log."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LimboError, match="another program holds it locked"):
        limbo(f"sqlite:///{file}", ManualClock(), busy_timeout=0.05).open()
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(limbo(f"sqlite:///{file}", ManualClock(), busy_timeout=30.0).open)
        with pytest.raises(TimeoutError):
            opening.result(0.2)
        other.execute("ROLLBACK")
        opening.result(20).close()
    other.close()


def test_a_full_disk_refuses_the_whole_batch_and_recovers_by_itself(file: Path) -> None:
    clock = ManualClock()
    with limbo(f"sqlite:///{file}", clock) as store:
        store.park(parkings(range(5), clock.now().wall))
        size = max(path.stat().st_size for path in file.parent.iterdir())
        with at_most(size + 100_000), pytest.raises(LimboError, match="disk") as refused:
            store.park([Parking(message(n, body=b"x" * 10_000), clock.now().wall) for n in range(10, 200)])
        assert refused.value.cure
        assert count(f"sqlite:///{file}") == 5
        store.park([Parking(message(n, body=b"x" * 10_000), clock.now().wall) for n in range(10, 200)])
        assert count(f"sqlite:///{file}") == 195
        assert sql(f"sqlite:///{file}", "PRAGMA integrity_check") == [("ok",)]


def test_a_file_with_no_more_pages_is_full(file: Path) -> None:
    clock = ManualClock()
    with limbo(f"sqlite:///{file}", clock) as store:
        with store._db.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 60")
        with pytest.raises(LimboError, match="its disk is full"):
            store.park([Parking(message(1, body=b"x" * 1_000_000), clock.now().wall)])
        assert count(f"sqlite:///{file}") == 0


def test_a_file_that_may_not_be_written_to_is_reported(file: Path) -> None:
    with limbo(f"sqlite:///{file}", ManualClock()):
        pass
    file.chmod(0o444)
    file.parent.chmod(0o555)
    for folder in (file.parent.parent, file.parent.parent.parent):
        if os.geteuid() == 0:
            folder.chmod(0o755)
    with as_nobody():
        told = str(refusal(f"sqlite:///{file}"))
    file.parent.chmod(0o755)
    assert "may not be written to" in told or "cannot be opened" in told


def test_a_file_that_is_deleted_under_us_is_noticed_before_anything_is_settled(file: Path) -> None:
    clock = ManualClock()
    store = limbo(f"sqlite:///{file}", clock).open()
    store.park(parkings([1], clock.now().wall))
    for path in list(file.parent.iterdir()):
        path.unlink()
    with pytest.raises(LimboError, match="moved or deleted"):
        store.park(parkings([2], clock.now().wall))
    crash(store)


def test_a_closed_limbo_raises_an_error_that_says_so() -> None:
    store = limbo("sqlite://", ManualClock())
    with pytest.raises(LimboError, match="closed"):
        store.park(parkings([1], 0.0))
    store.close()


def test_a_server_that_is_killed_refuses_and_works_again_when_it_is_back(postgres: Postgres) -> None:
    url, clock = postgres.new_database(), ManualClock()
    with limbo(url, clock) as store:
        store.park(parkings([1], clock.now().wall))
        rows = store.due()
        postgres.kill()
        try:
            with pytest.raises(LimboError):
                store.park(parkings([2], clock.now().wall))
            with pytest.raises(LimboError):
                store.done(rows)
        finally:
            postgres.start()
        assert store.done(rows) == rows  # what was published while it was away is removed now
        store.park(parkings([2], clock.now().wall))
        assert [row.out.copy_id for row in store.due()] == ["copy-2"]


# -- killed in the middle -----------------------------------------------------------------------------

PARKER = """
import sys
from redeliver_mw.limbo import Limbo
from redeliver_mw.memory.clock import ManualClock
from tests.limbo.messages import parkings
store = Limbo(sys.argv[1], app="shop", broker="mq:5672", host="dying").open()
n = 0
while True:
    store.park(parkings(range(n, n + 100), 0.0))
    n += 100
    print(n, flush=True)
"""


@pytest.mark.parametrize("after", [1, 3, 8])
def test_of_a_batch_in_which_the_program_is_killed_all_is_there_or_nothing(url: str, after: int) -> None:
    path = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "adapters")))
    process = subprocess.Popen(
        [sys.executable, "-c", PARKER, url], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(after)]
    time.sleep(0.003 * after)  # somewhere in the middle of the next one
    process.send_signal(signal.SIGKILL)
    told = int("".join([*said, process.stdout.read()]).split()[-1])
    process.wait()
    process.stdout.close()
    there = count(url)
    assert there % 100 == 0
    assert there in (told, told + 100)  # what was told is there; of the one under way all or nothing
    lines = {
        table: sql(url, f"SELECT count(*) FROM {table}")[0][0] for table in ("dms_limbo_body", "redeliver_limbo_msg")
    }
    assert set(lines.values()) == {there}
    clock = ManualClock()
    with limbo(url, clock, host="heir") as heir:
        clock.advance(15)
        heir.keep()
        gone = 0
        while rows := heir.due():
            gone += len(heir.done(rows))
        assert gone == there


WORKER = """
import sys, time
from redeliver_mw.limbo import Limbo
from tests.limbo.messages import parkings
store = Limbo(sys.argv[1], app="shop", broker="mq:5672", busy_timeout=30.0).open()
first = int(sys.argv[2])
gone = []
for n in range(first, first + 300, 30):
    store.park(parkings(range(n, n + 30), 0.0))
    gone += [row.out.copy_id for row in store.done(store.due(limit=20))]
    store.keep()
while rows := store.due():
    gone += [row.out.copy_id for row in store.done(rows)]
store.close()
print(*gone)
"""


def test_two_programs_at_once_on_one_database_lose_nothing_and_double_nothing(url: str) -> None:
    path = os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "adapters")))
    argv = [sys.executable, "-c", WORKER, url]
    processes = [
        subprocess.Popen([*argv, str(first)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
        for first in (0, 1000)
    ]
    gone = [copy_id for process in processes for copy_id in str(process.communicate(timeout=120)[0]).split()]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(gone) == len(set(gone)) == 600
    assert count(url) == 0
