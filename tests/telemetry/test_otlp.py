# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Follows spans that reach a collector over OTLP/HTTP: through two processes, a limbo and a replay."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.testing import MemoryBroker, register_broker
from tests.adapters.pika.dropins import Queues, queues
from tests.brokers import Broker
from tests.telemetry.otlp_collector import Received, collecting, picture
from tests.telemetry.otlp_worker import provider_of

REDELIVER = (sys.executable, "-c", "from redeliver_mw.cli.entry import main; main()")
INSTRUMENTED = (
    *(sys.executable, "-c"),
    "from opentelemetry.instrumentation.auto_instrumentation import run; run()",  # opentelemetry-instrument
)
PAGE = Path(__file__).parents[2] / "docs" / "traces.md"


@contextmanager
def worker(*arguments: str, started_by: Sequence[str] = ()) -> Iterator[None]:
    command = [*started_by, sys.executable, "-m", "tests.telemetry.otlp_worker", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == f"started, pika is {'' if started_by else 'not '}instrumented\n"
        try:
            yield
        finally:
            process.stdin.close()
            assert process.wait(30) == 0


def attempts(spans: list[Received]) -> list[Received]:
    return sorted((span for span in spans if "redeliver.attempt" in span.attributes), key=lambda span: span.begun)


def produce(q: Queues, endpoint: str) -> None:
    provider, headers = provider_of("producer", endpoint), dict[str, Any]()
    with provider.get_tracer("shop").start_as_current_span(f"send {q.name}", kind=SpanKind.PRODUCER):
        TraceContextTextMapPropagator().inject(headers)
        q.put("order 1", headers=headers)
    provider.shutdown()


@pytest.mark.broker
def test_links_lead_from_attempt_to_attempt_through_processes_limbo_dead_letter_and_replay(
    rabbitmq43: Broker, tmp_path: Path
) -> None:
    file = tmp_path / "limbo.db"
    with collecting() as collector, queues(rabbitmq43) as q:
        q.channel.queue_declare(q.dlq, durable=True)
        common = (rabbitmq43.url, q.name, f"sqlite:///{file}", collector.endpoint)
        produce(q, collector.endpoint)
        with worker("worker 1", *common):
            collector.until(lambda spans: any(span.name == f"park {q.name}" for span in spans))
        with sqlite3.connect(file) as database:
            assert database.execute("UPDATE dms_limbo_msg SET delivery_date = 0").rowcount == 1
        database.close()
        with worker("worker 2", *common, started_by=INSTRUMENTED):
            collector.until(lambda spans: len(attempts(spans)) == 4)
            subprocess.run([*REDELIVER, "dead", "replay", rabbitmq43.url, q.dlq], check=True, timeout=60)
            spans = collector.until(lambda spans: len(attempts(spans)) == 5)
        assert not q.left()
    drawn = picture(spans, q.name)
    print(f"\n{drawn}")
    by_id = {span.id: span for span in spans}
    (producer,) = [span for span in spans if span.service == "producer"]
    found = attempts(spans)
    assert [span.service for span in found] == ["worker 1"] * 3 + ["worker 2"] * 2
    assert len({span.trace for span in found}) == 5
    for span, before in zip(found, [None, *found], strict=False):
        assert [by_id[id_] for id_, _ in span.links] == [producer, before][: 1 + (before is not None)]
    outcomes = [(span.attributes["redeliver.outcome"], span.status, span.events) for span in found]
    assert outcomes == [
        ("redelivered", 2, ["exception"]),
        ("redelivered", 2, ["exception"]),
        ("redelivered", 2, ["exception"]),
        ("dead_lettered", 2, ["exception"]),
        ("accepted", 0, []),
    ]
    assert {span.attributes["redeliver.lineage"] for span in found} == {found[0].attributes["redeliver.lineage"]}
    (shown,) = re.findall(r"<!-- picture -->\n+```text\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert drawn.splitlines() == shown.splitlines()


@pytest.mark.parametrize("collector_is", ["down", "slow"])
def test_a_collector_that_is_down_or_slow_affects_no_message(collector_is: str) -> None:
    name = f"otlp-{collector_is}"
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker(name, broker)
    with collecting(wait=5.0) as slow:
        endpoint = slow.endpoint if collector_is == "slow" else "http://127.0.0.1:9/v1/traces"
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=1), 256, 50, max_export_batch_size=64)
        )
        app, handled = App(f"memory://{name}", traces=provider, policy=RedeliveryPolicy(dead_after=1)), []

        @app.handler("orders", workers=2)
        def handle(delivery: Delivery) -> None:
            handled.append(delivery.text)
            if delivery.text.endswith("7"):
                raise ValueError("no such lamp")

        with app:
            begun = time.monotonic()
            for n in range(2000):
                broker.send("orders", f"{n}".encode(), message_id=f"{n}")
            while len(handled) < 2000 or broker.depth("DLQ.orders") < 200:
                assert time.monotonic() - begun < 20
                time.sleep(0.01)
            took = time.monotonic() - begun
        assert took < 10
        assert (len(handled), broker.depth("orders"), broker.depth("DLQ.orders")) == (2000, 0, 200)
        threading.Thread(target=provider.shutdown, daemon=True).start()  # it waits for the collector
