# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the spans of wrapped callbacks, on each kind of pika's connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import context, trace

from redeliver_mw import RedeliveryPolicy
from tests.adapters.pika.dropins import KINDS, drive, queues
from tests.brokers import Broker
from tests.telemetry.spans import PRODUCER, Spans, links, text

pytestmark = pytest.mark.broker

POLICY = RedeliveryPolicy(dead_after=3, backoff=0.1)


@pytest.mark.parametrize("kind", [*KINDS, "coroutine"])
def test_each_attempt_of_a_callback_runs_in_its_own_span(kind: str, rabbitmq43: Broker) -> None:
    spans, seen = Spans(), []
    current_before = context.get_current()

    def see() -> None:
        seen.append(text(trace.get_current_span().get_span_context()))
        if len(seen) == 1:
            raise KeyError("out of stock")

    def callback(*_: Any) -> None:
        see()

    async def coroutine(*_: Any) -> None:
        await asyncio.sleep(0.01)
        see()

    with queues(rabbitmq43) as q:
        q.put("1", headers={"traceparent": PRODUCER})
        chosen, called = ("asyncio", coroutine) if kind == "coroutine" else (kind, callback)
        drive(chosen, rabbitmq43, q.name, called, lambda: len(spans.all) >= 2, policy=POLICY, traces=spans.provider)
        assert not q.left()
        first, second = spans.named(f"process {q.name}")
        assert first.attributes["messaging.destination.name"] == q.name
    assert seen == [text(first), text(second)]
    assert links(first) == [(PRODUCER[3:-3], "")]
    assert links(second) == [(PRODUCER[3:-3], ""), (text(first), "previous attempt")]
    assert [span.attributes["redeliver.outcome"] for span in (first, second)] == ["redelivered", "accepted"]
    assert first.attributes["server.port"] == rabbitmq43.port
    assert context.get_current() == current_before
