# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What it costs: threads, memory, processor time while nothing happens. Bounds are those of the README."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.clock import StepWatchingClock, SystemClock
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.telemetry.prometheus import PrometheusMetrics
from redeliver_mw.testing import TestApp
from tests.brokers import Broker

HELD_LIMIT = 2048  # bytes beside the message's own


def test_a_held_message_costs_less_than_two_kilobytes_beside_its_own() -> None:
    """In a process of its own, where no thread of another test allocates meanwhile."""
    done = subprocess.run([sys.executable, "-m", "tests.held_memory"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    stored, held = map(float, done.stdout.split())
    print(f"\nstored {stored:.0f} B, held {held:.0f} B more, each")
    assert 0 < held < HELD_LIMIT


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_a_hundred_thousand_messages() -> None:
    app = App("memory://", policy=RedeliveryPolicy(dead_after=2, backoff=0.0, on_dead="discard"), prefetch=100)

    @app.handler("orders")
    def mostly_well(delivery: Delivery) -> None:
        if int(delivery.text) % 4 == 0:
            raise ValueError("one in four")

    with TestApp(app) as test:

        def send(numbers: range) -> None:
            for n in numbers:
                test.send("orders", str(n), message_id=str(n))

        send(range(50_000))  # until the ledger is full: it keeps 10 000 of those that failed
        before = resident()
        send(range(50_000, 100_000))
        growth = resident() - before
    print(f"\n{growth / 1024:.0f} KiB more after 50 000 further messages")
    assert growth < 2 * 2**20


def test_metrics_cost_a_healthy_message_less_than_three_microseconds() -> None:
    """From the moment before its handler to the moment when its settlement is handed to the driver."""
    without = min(microseconds_for_a_message(None) for _ in range(5))
    counting = min(microseconds_for_a_message(PrometheusMetrics()) for _ in range(5))
    print(f"\n{without:.2f} us without metrics, {counting - without:.2f} us more with them")
    assert counting - without < 3.0


def microseconds_for_a_message(metrics: PrometheusMetrics | None) -> float:
    """Processor time for one message, without handler, driver and journal."""
    app = App("memory://", metrics=metrics)
    app.handler("orders")(lambda delivery: None)
    with TestApp(app) as test:
        engine: Any = test.app._engine
        engine.runner._clock = StepWatchingClock(SystemClock())  # what a clock costs is a part of it
        engine.runner._adapter.settle = lambda *_, **__: None  # as a driver that batches
        (generation,) = engine.runner._live
        source: Any = test.app.sources[0]
        unread: Any = None
        deliveries = [Delivery(source, generation, n, False, unread, unread) for n in range(20_000)]
        begin, ended = engine.runner.begin, engine.runner.ended
        began = time.thread_time()
        for delivery in deliveries:
            begin(delivery)
            ended(delivery, None)
        return (time.thread_time() - began) / len(deliveries) * 1e6


@pytest.mark.broker
def test_an_idle_app_uses_next_to_no_processor_time_and_few_threads(rabbitmq43: Broker, tmp_path: Path) -> None:
    app = App(rabbitmq43.url, declare="all", journal=tmp_path, policy=RedeliveryPolicy(dead_after=2, backoff=0.3))
    handled = threading.Semaphore(0)

    @app.handler("costs.idle", workers=2)
    def handle(delivery: Delivery) -> None:
        handled.release()

    before = threading.active_count()
    with app:
        threads = threading.active_count() - before
        began, cpu = time.monotonic(), time.process_time()
        assert not handled.acquire(timeout=4.0), "the queue should be empty"  # four seconds without work
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        print(f"\nidle: {share:.2%} of a core, {threads} threads")
        assert share < 0.02
        assert threads <= 4  # the connection's, two workers, the journal's


def test_the_link_to_a_store_costs_an_idle_app_one_thread_and_next_to_no_processor_time(tmp_path: Path) -> None:
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker("costs", broker)

    def threads(app: App, seconds: float) -> tuple[int, float]:
        """Return how many threads an App has, and the share of a core that it uses while it is idle."""
        app.handler("orders")(lambda delivery: None)
        before = set(threading.enumerate())  # one of them may end meanwhile
        with app:
            began, cpu, found = time.monotonic(), time.process_time(), len(set(threading.enumerate()) - before)
            app.wait(seconds)
            return found, (time.process_time() - cpu) / (time.monotonic() - began)

    alone, _ = threads(App("memory://costs"), 0.1)
    linked, share = threads(App("memory://costs", operations=f"sqlite:///{tmp_path}/store.db"), 3.0)
    print(f"\nidle and linked: {share:.2%} of a core, {linked - alone} thread more")
    assert linked == alone + 1
    assert share < 0.02
