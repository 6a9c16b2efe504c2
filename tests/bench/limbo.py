# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what limbo costs: `python -m tests.bench.limbo [--messages 10000] [--rounds 3] [--stock 100000] [--url …]`.

Retry copies of 256 bytes with some twenty headers are parked in batches of 500, handed out when due, and removed, each
in a transaction. Beside it, by hand, the same bodies go into one table with the driver alone, as durably. What counts
is the ratio within a round. Then a stock of messages is left lying, and a new process opens it. The figures are how
long it takes until the first due message is in hand, and how large the process is. Then an App on the memory broker
handles messages with and without `crash_safe`: this broker costs next to nothing, so this ratio is the worst there is.
The output is Markdown. `--url` is that of a PostgreSQL, `postgresql://…`.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from redeliver_mw import App, Delivery
from redeliver_mw.clock import SystemClock
from redeliver_mw.limbo import Limbo, Parking
from redeliver_mw.memory import MemoryAdapter, MemoryBroker
from redeliver_mw.message import Destination, Outgoing, Properties

BODY = b"x" * 256
BATCH = 500
AT = "2026-01-01T00:00:00.000000Z"
HEADERS = {
    "customer": "4711",
    "tenant": "north",
    "attempt_of": 3,
    "redeliver_failures": "3",
    "redeliver_failures_for": "orders",
    "redeliver_hop": "3",
    "redeliver_generation": "0",
    "redeliver_original_destination": "orders",
    "redeliver_original_kind": "queue",
    "redeliver_policy": "3:1000; 6:5000",
    "redeliver_policy_version": "0123456789abcdef",
    "redeliver_first_attempt_at": AT,
    "redeliver_first_failed_at": AT,
    "redeliver_last_failed_at": AT,
    "redeliver_not_before": AT,
    "redeliver_error_type": "TimeoutError",
    "redeliver_error_message": "the database did not answer within 3 s",
    "redeliver_error_fingerprint": "0" * 16,
}


def batches(count: int, due: float) -> Iterator[list[Parking]]:
    target = Destination("orders")
    for start in range(0, count, BATCH):
        batch = []
        for n in range(start, min(start + BATCH, count)):
            copy_id = f"{n:032x}"
            headers = HEADERS | {"redeliver_lineage": copy_id, "redeliver_copy_id": copy_id}
            properties = Properties(message_id=f"ID:{n}", content_type="application/json", priority=4)
            batch.append(Parking(Outgoing(target, BODY, headers, properties, copy_id), due))
        yield batch


def rate(count: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def by_limbo(url: str, count: int) -> tuple[float, float]:
    """Return the messages parked per second, and those handed out and removed per second."""
    with Limbo(url, app="bench") as store:
        waiting = list(batches(count, time.time()))

        def drain() -> None:
            while rows := store.due(limit=BATCH):
                store.done(rows)

        def fill() -> None:
            for batch in waiting:
                store.park(batch)

        return rate(count, fill), rate(count, drain)


def by_hand(file: Path, count: int) -> tuple[float, float]:
    """Store and delete the same bodies, and nothing else, with the `sqlite3` module; return both rates."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE m (id INTEGER, due REAL, body)"
    )

    def all_or_nothing(statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, rows)
        connection.execute("COMMIT")

    connection.execute("CREATE UNIQUE INDEX i ON m (id)")

    def put() -> None:
        for start in range(0, count, BATCH):
            all_or_nothing("INSERT INTO m VALUES (?, 0.0, ?)", ((n, BODY) for n in range(start, start + BATCH)))

    def take() -> None:
        for start in range(0, count, BATCH):
            all_or_nothing("DELETE FROM m WHERE id = ?", ((n,) for n in range(start, start + BATCH)))

    rates = rate(count, put), rate(count, take)
    connection.close()
    return rates


def opened(url: str) -> None:
    """Print the seconds until a due message is in hand, and the MiB of this process; runs in a process of its own."""
    began = time.perf_counter()
    with Limbo(url, app="bench") as store:
        rows = store.due(limit=1)
        seconds = time.perf_counter() - began
        assert rows
        store.back(rows)
        store.next_due()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(seconds, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def handled(url: str, count: int, *, crash_safe: bool, takes: float = 0.0) -> float:
    """Return how many healthy messages an App handles per second, from the start on.

    A handler takes `takes` seconds.
    """
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    for n in range(count):
        broker.send("orders", BODY, {"customer": "4711"}, message_id=f"m{n}")
    app = App("memory://", app_name="bench", limbo=url, crash_safe=crash_safe)
    done, left = threading.Event(), iter(range(count, 0, -1))

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if takes:
            time.sleep(takes)
        if next(left) == 1:
            done.set()

    def work() -> None:
        app._start(MemoryAdapter(broker), SystemClock())
        assert done.wait(120)

    try:
        return rate(count, work)
    finally:
        app.stop()


def compare_ledger(asked: argparse.Namespace, folder: Path) -> None:
    print("\n| App on the memory broker, msg/s | without `crash_safe` | with it | ratio |\n|---|---|---|---|")
    kinds = (("a handler that does nothing", 0.0, asked.messages), ("one that takes 1 ms", 0.001, 2000))
    for what, takes, count in kinds:
        off, on = [], []
        for n in range(asked.rounds):
            for crash_safe, rates in ((False, off), (True, on)):
                url = asked.url or f"sqlite:///{folder}/ledger{n}{crash_safe}{count}.db"
                rates.append(handled(url, count, crash_safe=crash_safe, takes=takes))
        ratios = [with_ / without for with_, without in zip(on, off, strict=True)]
        print(f"| {what} | {spread(off)} | {spread(on)} | {spread(ratios, 2)} |")


def spread(values: list[float], digits: int = 0) -> str:
    return " / ".join(f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))


def compare(asked: argparse.Namespace, folder: Path) -> None:
    limbo: list[tuple[float, float]] = []
    hand: list[tuple[float, float]] = []
    for n in range(asked.rounds):
        limbo.append(by_limbo(asked.url or f"sqlite:///{folder}/limbo{n}.db", asked.messages))
        hand.append(by_hand(folder / f"hand{n}.db", asked.messages))
    stock = asked.url or f"sqlite:///{folder}/stock.db"
    with Limbo(stock, app="bench") as store:
        for batch in batches(asked.stock, time.time()):
            store.park(batch)
    argv = [sys.executable, "-m", "tests.bench.limbo", "--opened", stock]
    seconds, size = map(float, subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.split())
    where = "PostgreSQL" if asked.url else "SQLite"
    print(
        f"{where}: {asked.messages} copies of 256 B, batches of {BATCH}, {asked.rounds} rounds (min / median / max)\n"
    )
    print("| | limbo, msg/s | one table by hand (SQLite), msg/s | ratio |\n|---|---|---|---|")
    for number, what in enumerate(("parked", "handed out and removed")):
        ours, theirs = [one[number] for one in limbo], [one[number] for one in hand]
        ratios = [mine / bare for mine, bare in zip(ours, theirs, strict=True)]
        print(f"| {what} | {spread(ours)} | {spread(theirs)} | {spread(ratios, 2)} |")
    print(f"\n| with {asked.stock} parked | |\n|---|---|")
    print(f"| opened, first due message in hand | {seconds:.2f} s |\n| the process has | {size:.0f} MiB |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stock", type=int, default=100_000)
    parser.add_argument("--url", help="an empty PostgreSQL database; default: SQLite files in a folder of their own")
    parser.add_argument("--what", choices=("all", "parking", "ledger"), default="all")
    parser.add_argument("--opened", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.opened:
        return opened(asked.opened)
    with tempfile.TemporaryDirectory(prefix="redeliver-bench-") as folder:
        if asked.what in ("all", "parking"):
            compare(asked, Path(folder))
        if asked.what in ("all", "ledger"):
            compare_ledger(asked, Path(folder))


if __name__ == "__main__":
    main()
