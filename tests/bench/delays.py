# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what waiting costs, on each real broker in turn, and what limbo costs.

    python -m tests.bench.delays [--rounds 3]

Stall: 500 healthy messages of 10 ms of work wait behind 50 failing ones, which fail at once and wait for 2 s, on 4
workers. The figure is the time until the last healthy one is done, over the same without the failing ones. Lateness:
messages fail, and once all have, 1000 of them are due again each second. The figure is how much later than due each
begins again. Then `tests.bench.limbo` runs. The bench prints Markdown, with the versions and the load of the machine
beside it, which is part of a figure.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from redeliver_mw import App, Delivery, RedeliveryPolicy, RetryAfter
from redeliver_mw.session import connect
from tests.brokers import Broker, broker
from tests.faults.letters import declare
from tests.faults.sites import OLD_ENOUGH

HEALTHY, FAILING, WORK, REST, WORKERS = 500, 50, 0.010, 2.0, 4
RATE = 1000  # messages that fall due in a second
BROKERS = {"activemq": "6.3", "artemis": "2.44", "rabbitmq": "4.3"}


class Way(NamedTuple):
    """Describes a way to wait, and how it is measured: all fail within `lead` seconds, before the first is due."""

    delay: str
    messages: int
    prefetch: int
    lead: float
    goal: str


WAYS = [
    Way("hold", 1000, 2500, 6.0, "p99 20 ms"),
    Way("schedule", 1000, 500, 12.0, "the broker's own"),
    Way("park", 2000, 500, 20.0, "p99 250 ms"),
]


def fill(own: Broker, queue: str, bodies: list[bytes]) -> None:
    declare(own, queue, f"DLQ.{queue}")
    with connect(own.url) as session:
        for n, body in enumerate(bodies):
            session.publish(queue, body, message_id=f"m-{n}")


class Consumer:
    """Runs an App whose handler is `act`; the measured time starts with the first message."""

    def __init__(self, own: Broker, queue: str, policy: RedeliveryPolicy, act: Callable[[Delivery], None], **how: Any):
        self._app = App(own.url, policy=policy, app_name="bench", **how)
        self._app.handler(queue)(act)

    def run(self, done: threading.Event, seconds: float) -> None:
        with self._app:
            assert done.wait(seconds), "it does not come to its end"


def stalled(own: Broker, failing: int) -> float:
    """Return the seconds from the first message to the last healthy one that is done."""
    queue = f"bench.stall.{failing}.{time.monotonic_ns()}"
    fill(own, queue, [b"failing"] * failing + [b"well"] * HEALTHY)
    done, lock, began, left = threading.Event(), threading.Lock(), [0.0], [HEALTHY]
    ended = [0.0]

    def act(delivery: Delivery) -> None:
        with lock:
            began[0] = began[0] or time.perf_counter()
        if delivery.body == b"failing":
            raise ConnectionError("the warehouse does not answer")
        time.sleep(WORK)
        with lock:
            left[0] -= 1
            if not left[0]:
                ended[0] = time.perf_counter()
                done.set()

    Consumer(own, queue, RedeliveryPolicy(3, REST), act, workers=WORKERS, prefetch=100).run(done, 120)
    return ended[0] - began[0]


def late(own: Broker, way: Way, folder: Path) -> list[float]:
    """Return the seconds that each message came after it was due, in order of size."""
    queue = f"bench.late.{way.delay}.{time.monotonic_ns()}"
    fill(own, queue, [b"%d" % n for n in range(way.messages)])
    done, go = threading.Event(), threading.Event()
    due: dict[bytes, float] = {}
    found: list[float] = []
    first = [0.0]

    def act(delivery: Delivery) -> None:
        if (expected := due.get(delivery.body)) is not None:
            found.append(time.monotonic() - expected)
            if len(found) == way.messages:
                done.set()
            return
        go.wait()
        now = time.monotonic()
        first[0] = first[0] or now + way.lead
        due[delivery.body] = max(now, first[0] + len(due) / RATE)
        raise RetryAfter(due[delivery.body] - now)

    limbo: dict[str, Any] = {"limbo": f"sqlite:///{folder}/{queue}.db"} if way.delay == "park" else {}
    # A new helper queue of RabbitMQ's is not trusted at once.
    threading.Timer(OLD_ENOUGH if own.kind == "rabbitmq" and way.delay == "schedule" else 0.0, go.set).start()
    policy = RedeliveryPolicy(3, [0.0, way.lead + way.messages / RATE])
    Consumer(own, queue, policy, act, prefetch=way.prefetch, delay=way.delay, **limbo).run(done, 120)
    if first[0] < max(due.values()) - way.messages / RATE:
        print(f"({queue}: some failed when others were due already)")
    return sorted(found)


def on_broker(kind: str, rounds: int, folder: Path) -> None:
    """Print a row for each figure, as soon as there is one."""
    with broker(kind, version=BROKERS[kind]) as own:
        without, with_failing = [], []
        for _ in range(rounds + 1):  # the first one warms a JVM
            without.append(stalled(own, 0))
            with_failing.append(stalled(own, FAILING))
        ratios = [failing / bare for failing, bare in zip(with_failing[1:], without[1:], strict=True)]
        seconds = (
            f"{statistics.median(without[1:]):.2f} s alone, {statistics.median(with_failing[1:]):.2f} s behind them"
        )
        row(kind, f"{HEALTHY} healthy behind {FAILING} failing", f"{seconds}; ratio {spread(ratios)}", "1.2")
        for way in WAYS:
            what = f"lateness, {way.delay}: median / p99 / max"
            try:
                values = late(own, way, folder)
            except Exception as error:
                row(kind, what, f"not to be had: {error}", way.goal)
                continue
            shares = " / ".join(f"{values[round(share * (len(values) - 1))] * 1000:.0f}" for share in (0.5, 0.99, 1.0))
            row(kind, what, f"{shares} ms", way.goal)


def row(kind: str, *cells: str) -> None:
    print("|", " | ".join((f"{kind} {BROKERS[kind]}", *cells)), "|", flush=True)


def spread(values: list[float]) -> str:
    return " / ".join(f"{v:.2f}" for v in (min(values), statistics.median(values), max(values)))


def machine() -> str:
    """Return what figures depend on, in a line."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}; load averages {load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", nargs="*", choices=BROKERS, default=list(BROKERS))
    parser.add_argument("--without-limbo", action="store_true", help="not what limbo and the ledger cost")
    asked = parser.parse_args()
    print(
        f"{machine()}; ratios: min / median / max\n\n| broker | what | | goal, at most |\n|---|---|---|---|", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="redeliver-bench-") as folder:
        for kind in asked.brokers:
            on_broker(kind, asked.rounds, Path(folder))
    if not asked.without_limbo:
        print(flush=True)
        subprocess.run([sys.executable, "-m", "tests.bench.limbo", "--rounds", str(asked.rounds)], check=True)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
