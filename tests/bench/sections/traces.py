# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The App on RabbitMQ without traces, with a span for one message in ten, and with one for each.

Spans go through a `BatchSpanProcessor` to an exporter that sends nothing: what a message costs is the App's and
OpenTelemetry's. Once with a handler that does nothing, and once with one of 1 ms; the journal is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, Case

OFF, TENTH, ALL = "App, no traces", "App, traces of 10 %", "App, traces of 100 %"
SAMPLED = {OFF: None, TENTH: 0.1, ALL: 1.0}


def measure(asked: Asked) -> Iterator[Figure]:
    usual = Case(asked.messages, journal=False)
    cases = {
        "handler of 0 ms": usual,
        "handler of 1 ms": replace(usual, messages=max(200, asked.messages // 5), work_ms=1),
    }
    with asked.ground("rabbitmq") as at:
        for name, case in cases.items():
            turns = [
                at.turn(APP, replace(case, traces=sampled))._replace(side=side) for side, sampled in SAMPLED.items()
            ]
            yield from at.compare("traces", name, turns, asked.rounds)
