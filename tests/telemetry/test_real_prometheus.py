# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes an App on a real broker in an outage: alerts fire and resolve, and the values are right.

The rules are those of docs/operate/alerts.yml, with all times divided by 120. promtool tests them with their own times.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, Reject, connect
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.journal.segments import read_segments
from tests.brokers import Broker
from tests.brokers._process import free_ports
from tests.telemetry.prometheus_server import Prometheus, prometheus
from tests.telemetry.test_operate import OPERATE

FASTER = 120
UNITS = {"s": 1, "m": 60, "h": 3600}


def quick_rules() -> str:
    """Return the rules, with every time divided."""

    def duration(found: re.Match[str]) -> str:
        return f"{int(found[1]) * UNITS[found[2]] * 1000 // FASTER}ms"

    text = re.sub(r"\b(\d+)([smh])\b", duration, (OPERATE / "alerts.yml").read_text())
    return re.sub(r"> (900|300|60)\b", lambda found: f"> {int(found[1]) / FASTER}", text)


def test_every_time_of_the_rules_is_divided() -> None:
    text = quick_rules()
    assert "increase(redeliver_dead_letters_total[2500ms])" in text
    assert "keep_firing_for: 5000ms" in text
    assert "redeliver_dead_letter_oldest_timestamp_seconds) > 7.5" in text
    assert not re.search(r"\b\d+m\b", text)


@pytest.mark.broker
@pytest.mark.parametrize("which", ["rabbitmq43", "activemq63", "artemis244"])
def test_alerts_fire_in_an_outage_and_resolve_after_it_and_the_values_equal_the_journal_s(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker: Broker = request.getfixturevalue(which)
    queue = f"metrics-{uuid.uuid4().hex[:8]}"
    (port,) = free_ports(1)
    away = threading.Event()
    app = App(
        broker.url,
        declare="all",
        metrics=f"127.0.0.1:{port}",
        journal=tmp_path / "journal",
        breaker=Breaker(min_calls=3, window=3, open_for=1.0, max_open_for=1.0),
        policy=RedeliveryPolicy(dead_after=5, backoff=0.2),
    )

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        if delivery.text == "wrong":
            raise Reject("no such product")
        if away.is_set():
            raise ConnectionError("the shop's database is away")

    with app, prometheus(tmp_path, f"127.0.0.1:{port}", quick_rules()) as server, connect(broker.url) as session:

        def publish(*texts: str) -> None:
            for text in texts:
                session.publish(f"queue:{queue}", text)

        publish(*["fine"] * 5)
        accepted = 'sum(redeliver_attempts_total{outcome="accepted"})'
        server.eventually(lambda: server.query(accepted), lambda found: 5 in found.values(), 20)
        assert server.firing() <= {"RedeliverNoMetrics"}  # Prometheus itself has just started
        away.set()
        publish("wrong", *["fine"] * 4)
        left, expected = "RedeliverDeadLettersAreLeft", {"RedeliverBreakerOpen", "RedeliverDeadLetters"}
        server.eventually(server.firing, lambda names: names >= expected, 20)
        away.clear()
        server.eventually(lambda: server.query(accepted), lambda found: 9 in found.values(), 20)
        server.eventually(server.firing, lambda names: names <= {left}, 20)
        server.eventually(server.firing, lambda names: left in names, 20)
        letters = server.query("redeliver_dead_letter_queue_messages")
        assert list(letters.values()) == [1]
        scraped = _counts(server)
    assert scraped == _counts_of(tmp_path / "journal", f"queue:{queue}")


def _counts(server: Prometheus) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    names = ("attempts", "first_attempts", "dead_letters", "delays")
    found = {name: server.query(f"redeliver_{name}_total") for name in names}
    return {name: {labels: n for labels, n in values.items() if n} for name, values in found.items()}


def _counts_of(folder: Path, source: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return the counts of the journal, as `_counts` returns those of Prometheus.

    Prometheus has no label whose value is empty.
    """
    found: dict[str, Counter[frozenset[tuple[str, str]]]] = {
        name: Counter() for name in ("attempts", "first_attempts", "dead_letters", "delays")
    }

    def add(name: str, **labels: str | None) -> None:
        given = {"source": source} | {k: v for k, v in labels.items() if v}
        found[name][frozenset(given.items())] += 1

    for one in read_segments(folder):
        add("attempts", outcome=one.outcome, error_type=one.error_type)
        if one.first_attempt_us == one.ts_us - one.handler_us:
            add("first_attempts")
        if one.outcome == "dead_lettered":
            add("dead_letters", reason=one.reason)
        if one.mechanism:
            add("delays", mechanism=one.mechanism)
    return {name: {labels: float(n) for labels, n in values.items()} for name, values in found.items()}
