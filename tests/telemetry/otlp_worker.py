# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumes with traces: `python -m tests.telemetry.otlp_worker NAME URL QUEUE LIMBO ENDPOINT`.

The handler fails on every message that was not replayed. The program ends when its standard input does.
"""

from __future__ import annotations

import sys

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pika.connection import Connection

from redeliver_mw import App, Delivery, RedeliveryPolicy


def provider_of(name: str, endpoint: str) -> TracerProvider:
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint), schedule_delay_millis=100))
    return provider


def main() -> None:
    name, url, queue, limbo, endpoint = sys.argv[1:]
    provider = provider_of(name, endpoint)
    policy = RedeliveryPolicy(dead_after=4, backoff=[0.2, 0.2, 3600.0])
    app = App(url, policy=policy, limbo=limbo, app_name="shop", declare="none", traces=provider)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        if not delivery.past.replay_id:
            raise ValueError("no such lamp")

    with app:
        instrumented = hasattr(Connection.channel, "__wrapped__")
        print(f"started, pika is {'' if instrumented else 'not '}instrumented", flush=True)
        sys.stdin.read()
    provider.shutdown()


if __name__ == "__main__":
    main()
