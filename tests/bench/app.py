# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the side of the App, which is the same on every broker."""

from __future__ import annotations

import threading
from typing import Any

from tests.bench.side import Count, Task

ABOUT = {f"messaging.attribute.{number}": "value" for number in range(6)}  # about as much as our spans have


def by_app(task: Task) -> None:
    from redeliver_mw import App, Delivery

    done = threading.Event()
    count = Count(task, done.set)
    metrics = None
    if task.metrics:
        from redeliver_mw.telemetry.prometheus import PrometheusMetrics

        metrics = PrometheusMetrics()
    app = App(
        task.url,
        prefetch=task.prefetch,
        journal=task.journal,
        limbo=task.limbo,
        crash_safe=task.limbo is not None,
        metrics=metrics,
        traces=None if task.traces is None else _provider(task.traces),
    )

    tracer = None if task.spans is None else _provider(task.spans).get_tracer("by hand")

    @app.handler(task.queue)
    def handle(delivery: Delivery) -> None:
        if tracer is None:
            count.one()
        else:
            with tracer.start_as_current_span("process bench", attributes=ABOUT):
                count.one()

    app.start()
    done.wait()
    count.report()
    app.stop()


def _provider(sampled: float) -> Any:
    """Return a tracer provider that samples this share, and sends its spans nowhere."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(sampled)))
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return provider
