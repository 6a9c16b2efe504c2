# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the App on RabbitMQ without telemetry, with metrics, with a span for one message in ten, and for each.

Spans go through a `BatchSpanProcessor` to an exporter that sends nothing: what a message costs is the App's and
OpenTelemetry's. OpenTelemetry's own part is seen beside it: the last two sides make no traces, and their handlers make
a span by hand, with the same samplers. The section runs once with a handler that does nothing else, and once with one
of 1 ms; the journal is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, Case

SIDES: dict[str, dict[str, Any]] = {
    "App, no telemetry": {},
    "App, metrics": {"metrics": True},
    "App, traces of 10 %": {"traces": 0.1},
    "App, traces of 100 %": {"traces": 1.0},
    "App, spans by hand, 10 %": {"spans": 0.1},
    "App, spans by hand, 100 %": {"spans": 1.0},
}


def measure(asked: Asked) -> Iterator[Figure]:
    usual = Case(asked.messages, journal=False)
    cases = {
        "handler of 0 ms": usual,
        "handler of 1 ms": replace(usual, messages=max(200, asked.messages // 5), work_ms=1),
    }
    with asked.ground("rabbitmq") as at:
        for name, case in cases.items():
            turns = [at.turn(APP, replace(case, **options))._replace(side=side) for side, options in SIDES.items()]
            yield from at.compare("traces", name, turns, asked.rounds)
