# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""App and drop-in against the loop one would write by hand, on one broker, in one run: what the three benches share.

Each side is a process of its own that consumes the same number of persistent messages of 256 bytes with a no-op
handler, prefetch 500; sides take turns, so that a machine whose speed drifts treats them alike. What counts is the
ratio within a round; the medians are printed with their spread. A first round, which warms a JVM, does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PREFETCH = 500
BODY = b"x" * 256
BY_HAND = "by hand"

Side = Callable[[str, str, int, str | None], None]  # url, queue, messages, journal


class Bench(NamedTuple):
    """What one broker brings: its sides, how a queue is filled, the kinds of queue, and how it is started."""

    module: str
    kind: str
    version: str
    options: Mapping[str, Any]
    queues: tuple[str, ...]
    fill: Callable[[str, str, int, str], None]  # url, queue, messages, kind of queue; the queue is new or empty
    sides: Mapping[str, Side]


class Count:
    """Of messages: the clock starts with the first, `done` is called with the last."""

    def __init__(self, wanted: int, done: Callable[[], object]) -> None:
        self.wanted, self._done = wanted, done
        self.seen, self._began = 0, 0.0

    def one(self) -> None:
        self._began = self._began or time.perf_counter()
        self.seen += 1
        if self.seen == self.wanted:
            self._done()

    def report(self) -> None:
        """What a side prints: messages per second, and how many MiB the process has."""
        seconds = time.perf_counter() - self._began
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(self.wanted / seconds, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, flush=True)


def by_app(url: str, queue: str, count: int, journal: str | None) -> None:
    """The App; the same on every broker."""
    from redeliver_mw import App, Delivery

    done = threading.Event()
    counter = Count(count, done.set)
    application = App(url, prefetch=PREFETCH, journal=journal)

    @application.handler(queue)
    def handle(delivery: Delivery) -> None:
        counter.one()

    application.start()
    done.wait()
    counter.report()
    application.stop()


def one(bench: Bench, side: str, url: str, queue: str, count: int, journal: str | None) -> tuple[float, float]:
    """Messages per second and MiB of one side, in a process of its own."""
    command = [sys.executable, "-m", bench.module, "--side", side, "--url", url, "--queue", queue]
    command += ["--messages", str(count)] + (["--journal", journal] if journal else [])
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    rate, memory = printed.split()
    return float(rate), float(memory)


def compare(bench: Bench, url: str, asked: argparse.Namespace) -> None:
    """Rounds on each kind of queue, and the table."""
    import rich.console
    import rich.table

    title = f"{bench.kind} {bench.version}: {asked.messages} messages of 256 B, no-op, prefetch {PREFETCH}"
    table = rich.table.Table(title=f"{title}, {asked.rounds} rounds")
    for heading in ("queue", "side", "msg/s (min / median / max)", "ratio to by hand (min / median / max)", "RSS MiB"):
        table.add_column(heading)
    for kind in asked.queues:
        rates: dict[str, list[float]] = {side: [] for side in bench.sides}
        sizes = {}
        for n in range(-1, asked.rounds):
            for side in bench.sides if n % 2 == 0 else reversed(bench.sides):
                queue = f"bench.{kind}"
                bench.fill(url, queue, asked.messages, kind)
                rate, sizes[side] = one(bench, side, url, queue, asked.messages, asked.journal)
                if n >= 0:
                    rates[side].append(rate)
        for side in bench.sides:
            ratios = [mine / bare for mine, bare in zip(rates[side], rates[BY_HAND], strict=True)]
            table.add_row(kind, side, spread(rates[side], 0), spread(ratios, 2), f"{sizes[side]:.0f}")
    rich.console.Console(width=110).print(table)


def spread(values: list[float], digits: int) -> str:
    return " / ".join(f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))


def run(bench: Bench) -> None:
    """The command line of a bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a broker that runs already; else one is started for this")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queues", nargs="+", choices=bench.queues, default=bench.queues)
    parser.add_argument("--journal", help="a folder: App and drop-in write theirs there")
    parser.add_argument("--side", choices=bench.sides, help=argparse.SUPPRESS)
    parser.add_argument("--queue", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        bench.sides[asked.side](asked.url, asked.queue, asked.messages, asked.journal)
    elif asked.url:
        compare(bench, asked.url, asked)
    else:
        from tests.brokers import broker

        with broker(bench.kind, version=bench.version, **bench.options) as own:
            compare(bench, own.url, asked)
