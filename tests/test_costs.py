# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the costs in threads, memory, and processor time while nothing happens. The bounds are those of the README."""

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
from opentelemetry import context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, SpanContext, SpanKind, set_span_in_context

from redeliver_mw import App, Delivery, Destination, RedeliveryPolicy
from redeliver_mw.clock import StepWatchingClock, SystemClock
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.telemetry.prometheus import PrometheusMetrics
from redeliver_mw.testing import TestApp, make_delivery
from tests.brokers import Broker
from tests.telemetry.spans import PRODUCER

HELD_LIMIT = 2048  # bytes beside the message's own


def test_a_held_message_costs_less_than_two_kilobytes_beside_its_own() -> None:
    """The messages are held in a process of its own, where no thread of another test allocates meanwhile."""
    done = subprocess.run([sys.executable, "-m", "tests.held_memory"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    stored, held = map(float, done.stdout.split())
    print(f"\nstored {stored:.0f} B, held {held:.0f} B more, each")
    assert 0 < held < HELD_LIMIT


def resident() -> int:
    """Return how many bytes of this process are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


PLAIN_APP = """
import sys
from redeliver_mw import App
app = App("memory://plain", policy="3:1000")
app.handler("orders")(lambda delivery: None)
with app:
    assert app.health()["started"]
print(*sys.modules)
"""


def test_an_app_loads_nothing_of_what_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN_APP], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    parts = {".".join(name.split(".")[:2]) for name in done.stdout.split()}
    assert "redeliver_mw.runtime" in parts
    unused = {"crash_safety", "dead_letters", "doctor", "limbo", "operations", "storage"}
    assert parts & {"sqlalchemy", "pydantic", *(f"redeliver_mw.{name}" for name in unused)} == set()


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
    """The time is from the moment before the handler to the moment when the settlement is handed to the driver.

    A message without metrics takes about two. On a busy machine both take more; then the bound is twice as much.
    """
    without, counting = least([{}, {"metrics": PrometheusMetrics()}], messages=3000, rounds=7)
    print(f"\n{without:.2f} us without metrics, {counting - without:.2f} us more with them")
    assert counting - without < max(3.0, 2 * without)


@pytest.mark.parametrize(("sampled", "most"), [(0.0, 10.0), (1.0, 40.0)], ids=["unsampled", "sampled"])
def test_a_span_costs_a_healthy_message_at_most_so_many_microseconds(sampled: float, most: float) -> None:
    """The time is from the moment before the handler to the hand-over of the settlement, without the exporter.

    Three times what OpenTelemetry's own spans take in the same run is allowed as well. On a busy machine both take more
    than on an idle one.
    """
    traces = provider(sampled)
    without, traced = least([{}, {"traces": traces}], messages=1000, rounds=8)
    own = min(microseconds_of_bare_spans(traces, 1000) for _ in range(8))
    ratio = (traced - without) / own
    print(
        f"\n{without:.1f} us, {traced - without:.1f} us more with traces, {ratio:.1f} times the SDK's own {own:.1f} us"
    )
    assert traced - without < max(most, 3 * own)


PAUSE = 0.001  # seconds of the handler
FIVE_PERCENT = 50.0  # of it, in microseconds


def test_with_a_handler_of_one_millisecond_telemetry_takes_at_most_five_percent_of_the_throughput() -> None:
    """Throughput is measured as processor time, which is what a worker's messages per second lose.

    Between two messages a busy machine takes the processor's caches away. Spans of OpenTelemetry's own, without us,
    can then take longer than that; in this case ours take no more than three times as long.
    """
    kinds: dict[str, dict[str, Any]] = {"metrics": {"metrics": PrometheusMetrics()}}
    kinds |= {f"traces, {share:.0%} sampled": {"traces": provider(share)} for share in (0.0, 1.0)}
    without, *found = least([{}, *kinds.values()], messages=100, rounds=3, pause=PAUSE)
    sleeping = min(microseconds_of_bare_spans(None, 100, PAUSE) for _ in range(3))
    for (kind, options), took in zip(kinds.items(), found, strict=True):
        own = 0.0
        if "traces" in options:
            own = min(microseconds_of_bare_spans(options["traces"], 100, PAUSE) for _ in range(3)) - sleeping
        print(f"\n{kind}: {took - without:.1f} us more for a message, {own:.1f} of them without us")
        assert took - without < max(FIVE_PERCENT, 3 * own)


def provider(sampled: float) -> TracerProvider:
    """Return a tracer provider that samples this share, and has nothing that takes the spans."""
    return TracerProvider(sampler=ParentBased(TraceIdRatioBased(sampled)))


def microseconds_of_bare_spans(traces: TracerProvider | None, messages: int, pause: float = 0.0) -> float:
    """Return the processor time for one span that OpenTelemetry makes alone.

    The span has as many attributes and links as ours.
    """
    tracer = None if traces is None else traces.get_tracer("bare")
    about = dict.fromkeys([f"messaging.attribute.{n}" for n in range(6)], "value")
    producer = SpanContext(1, 2, is_remote=True)
    began = time.thread_time()
    for _ in range(messages):
        span = None
        if tracer is not None:
            span = tracer.start_span("process orders", kind=SpanKind.CONSUMER, attributes=about, links=[Link(producer)])
            token = context.attach(set_span_in_context(span))
        if pause:
            time.sleep(pause)  # the handler
        if span is not None:
            context.detach(token)
            span.set_attribute("outcome", "accepted")
            span.end()
    return (time.thread_time() - began) / messages * 1e6


def least(kinds: list[dict[str, Any]], *, messages: int, rounds: int, pause: float = 0.0) -> list[float]:
    """Return what a message takes at least with each kind of App, in microseconds. They take turns."""
    found = [[microseconds_for_a_message(options, messages, pause) for options in kinds] for _ in range(rounds)]
    return [min(column) for column in zip(*found, strict=True)]


def microseconds_for_a_message(options: dict[str, Any], messages: int, pause: float = 0.0) -> float:
    """Return the processor time for one message, without driver and journal.

    The handler does nothing but sleep.
    """
    app = App("memory://", **options)
    app.handler("orders")(lambda delivery: None)
    with TestApp(app) as test:
        engine: Any = test.app._engine
        engine.runner._clock = StepWatchingClock(SystemClock())  # what a clock costs is a part of it
        engine.runner._adapter.settle = lambda *_, **__: None  # as a driver that batches
        (generation,) = engine.runner._live
        deliveries = [received(test.app.sources[0], generation, n) for n in range(messages)]
        begin, ended = engine.runner.begin, engine.runner.ended
        began = time.thread_time()
        for delivery in deliveries:
            begin(delivery)
            if pause:
                time.sleep(pause)
            ended(delivery, None)
        return (time.thread_time() - began) / messages * 1e6


def received(source: Destination, generation: int, number: int) -> Delivery:
    """Return a delivery of a message that is traced; reading the message is the adapter's."""
    message = make_delivery(b"x", {"traceparent": PRODUCER}, message_id=f"m{number}")
    delivery = Delivery(source, generation, number, False, message.native, message.reader)
    assert delivery.headers
    assert delivery.message_id
    return delivery


@pytest.mark.broker
def test_an_idle_app_uses_next_to_no_processor_time_and_few_threads(rabbitmq43: Broker, tmp_path: Path) -> None:
    app = App(rabbitmq43.url, declare="all", journal=tmp_path, policy=RedeliveryPolicy(dead_after=2, backoff=0.3))
    handled = threading.Semaphore(0)

    @app.handler("costs.idle", workers=2)
    def handle(delivery: Delivery) -> None:
        handled.release()

    before = set(threading.enumerate())
    with app:
        threads = len(set(threading.enumerate()) - before)
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
