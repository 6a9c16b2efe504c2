# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plays an operator's session: with `redeliver limbo`, and with the database's own program, while the App runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

from redeliver_mw.limbo import Limbo, LimboWorker, Parked, Parking
from tests.brokers.skips import not_to_be_had
from tests.cli.running import redeliver
from tests.limbo.messages import count, message


def type_in(url: str, statement: str) -> str:
    """Return what the database's own program prints for a statement."""
    program = "sqlite3" if url.startswith("sqlite") else "psql"
    if not shutil.which(program):
        not_to_be_had(f"the program {program} is not installed. Install sqlite3 and postgresql-client")
    argv = ["sqlite3", url.removeprefix("sqlite:///")] if program == "sqlite3" else ["psql", "-At", url, "-c"]
    done = subprocess.run([*argv, statement], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_given_up_looked_at_repaired_by_sql_and_gone(url: str, tmp_path: Path) -> None:
    """The target was misspelled: an operator corrects it, types the manual's statement, and it goes within 3 s."""
    seen: list[tuple[str, float]] = []

    def publish(row: Parked) -> None:
        if row.out.target.name == "orders":
            seen.append((row.out.copy_id, time.monotonic()))
            worker.published(row)
        else:
            worker.failed(row, f"no queue {row.out.target.name}", again=0.0)

    worker = LimboWorker(Limbo(url, app="shop", retry=5).open(), publish)
    worker.start()
    try:
        worker.park(Parking(message(1, target=message().target.parse("oders")), time.time()), lambda *_: None)
        while "6" not in type_in(url, "SELECT delivery_count FROM dms_limbo_msg"):
            time.sleep(0.05)
        listed = redeliver(tmp_path, "limbo", "list", url)
        assert listed.returncode == 0, listed.stderr
        assert all(word in listed.stdout for word in ("queue:oders", "given up", "no queue oders", "1 given up"))
        assert listed.stderr == ""
        (shown,) = json.loads(redeliver(tmp_path, "limbo", "show", url, "--json").stdout)
        assert (shown["body"], shown["publishes"]) == ("order 1", 5)
        type_in(url, "UPDATE dms_limbo_msg SET port_name='queue:orders'")
        began = time.monotonic()
        type_in(url, "UPDATE dms_limbo_msg SET delivery_count=1")
        while not seen and time.monotonic() < began + 20:
            time.sleep(0.02)
        assert [copy_id for copy_id, _ in seen] == ["copy-1"]
        assert seen[0][1] - began < 3.5  # 3 s, and what it takes to start the program
    finally:
        assert worker.stop(30)
    assert count(url) == 0


def test_released_from_the_command_line_it_goes_at_once(url: str, tmp_path: Path) -> None:
    with Limbo(url, app="shop") as store:
        store.park([Parking(message(n), time.time() + 3600) for n in range(3)])
        assert store.due() == []
        released = redeliver(tmp_path, "limbo", "release", url, "--limit", "2")
        assert (released.returncode, released.stdout) == (0, "2 of 3 released\n")
        assert [row.out.copy_id for row in store.due()] == ["copy-0", "copy-1"]
