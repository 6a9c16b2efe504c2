# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the dashboard for Grafana: `python -m tests.telemetry.dashboard --write` renews docs/operate/dashboard.json.

Only panels that Grafana itself brings are used, so that no plugin has to be installed.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "dashboard.json"
CORE_PANELS = {"row", "stat", "timeseries"}
CHOSEN = 'job=~"$job", source=~"$source"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 8, 8  # of a panel; a row of Grafana is 24 wide


def _panel(
    title: str, unit: str, *queries: tuple[str, str], kind: str = "timeseries", text: str = ""
) -> dict[str, Any]:
    """Return a panel; each query is a PromQL expression and its legend."""
    targets = [
        {"datasource": SOURCE, "expr": expr, "legendFormat": legend, "refId": chr(ord("A") + n)}
        for n, (expr, legend) in enumerate(queries)
    ]
    defaults = {"unit": unit, "min": 0}
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }


def _quantile(share: float, metric: str) -> tuple[str, str]:
    rate = f"sum by (le, source) (rate({metric}_bucket{{{CHOSEN}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {rate})", f"{{{{source}}}} p{share * 100:g}"


def _rate(metric: str, by: str, legend: str, more: str = "") -> tuple[str, str]:
    return f"sum by ({by}) (rate({metric}{{{CHOSEN}{more}}}[$__rate_interval]))", legend


ROWS: dict[str, list[dict[str, Any]]] = {
    "Does a person have to act?": [
        _panel(
            "Dead letters in the last hour",
            "short",
            (f"sum(increase(redeliver_dead_letters_total{{{CHOSEN}}}[1h]))", "dead letters"),
            kind="stat",
        ),
        _panel(
            "Age of the oldest dead letter",
            "s",
            ('time() - min(redeliver_dead_letter_oldest_timestamp_seconds{job=~"$job"})', "age"),
            kind="stat",
            text="On RabbitMQ: since when the queue is not empty.",
        ),
        _panel(
            "Open breakers",
            "short",
            (f'sum(redeliver_breaker_state{{{CHOSEN}, state=~"open|half-open"}})', "breakers"),
            kind="stat",
        ),
    ],
    "Attempts": [
        _panel("Attempts by outcome", "ops", _rate("redeliver_attempts_total", "outcome", "{{outcome}}")),
        _panel(
            "Failures by type of error",
            "ops",
            _rate("redeliver_attempts_total", "error_type", "{{error_type}}", ', error_type!=""'),
        ),
        _panel(
            "Attempts for each new message",
            "short",
            (
                f"sum by (source) (rate(redeliver_attempts_total{{{CHOSEN}}}[$__rate_interval]))"
                f" / sum by (source) (rate(redeliver_first_attempts_total{{{CHOSEN}}}[$__rate_interval]))",
                "{{source}}",
            ),
            text="1: nothing is retried.",
        ),
        _panel(
            "Dead letters by reason",
            "short",
            (
                f"sum by (source, reason) (increase(redeliver_dead_letters_total{{{CHOSEN}}}[$__rate_interval])) > 0",
                "{{source}} {{reason}}",
            ),
        ),
        _panel(
            "New kinds of failures",
            "short",
            (
                f"sum by (source) (increase(redeliver_new_fingerprints_total{{{CHOSEN}}}[$__rate_interval]))",
                "{{source}}",
            ),
        ),
        _panel("Delays by mechanism", "ops", _rate("redeliver_delays_total", "mechanism", "{{mechanism}}")),
    ],
    "Waiting": [
        _panel(
            "Messages in the program",
            "short",
            (f"sum by (source) (redeliver_waiting_messages{{{CHOSEN}}})", "{{source}} for their handler"),
            (f"sum by (source) (redeliver_held_messages{{{CHOSEN}}})", "{{source}} held"),
        ),
        _panel(
            "Hold budget",
            "percentunit",
            (f"max by (source) (redeliver_hold_budget_used_ratio{{{CHOSEN}}})", "{{source}}"),
        ),
        _panel(
            "Since the last settlement",
            "s",
            (
                f"time() - max by (source) (redeliver_last_settle_timestamp_seconds{{{CHOSEN}}})",
                "{{source}}",
            ),
        ),
        _panel(
            "Dead-letter queues",
            "short",
            ('max by (queue) (redeliver_dead_letter_queue_messages{job=~"$job"})', "{{queue}}"),
        ),
        _panel(
            "Dead letters in the store",
            "short",
            (f"max by (source) (redeliver_stored_dead_letters{{{CHOSEN}}})", "{{source}}"),
        ),
        _panel(
            "Age of the oldest dead letter in the store",
            "s",
            (
                f"time() - min by (source) (redeliver_stored_dead_letter_oldest_timestamp_seconds{{{CHOSEN}}})",
                "{{source}}",
            ),
        ),
        _panel("Parked messages", "short", ('sum by (job) (redeliver_parked_messages{job=~"$job"})', "{{job}}")),
        _panel(
            "First parked message is due in",
            "s",
            ('min by (job) (redeliver_parked_due_timestamp_seconds{job=~"$job"}) - time()', "{{job}}"),
        ),
    ],
    "Durations and connections": [
        _panel(
            "Handler",
            "s",
            *(_quantile(share, "redeliver_handler_duration_seconds") for share in (0.5, 0.95, 0.99)),
        ),
        _panel("Confirm of a copy", "s", _quantile(0.95, "redeliver_copy_confirm_duration_seconds")),
        _panel("Settlement of a retrying message", "s", _quantile(0.95, "redeliver_settle_duration_seconds")),
        _panel(
            "Connections",
            "short",
            ('min by (instance, connection) (redeliver_connection_up{job=~"$job"})', "{{instance}} {{connection}}"),
        ),
        _panel(
            "Policies",
            "short",
            (f"count by (source, version) (redeliver_policy_info{{{CHOSEN}}})", "{{source}} {{version}}"),
            text="How many programs follow each version of a policy.",
        ),
    ],
}


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    ids, y = itertools.count(1), 0
    for title, panels in ROWS.items():
        row = {"type": "row", "title": title, "collapsed": False, "panels": []}
        found.append(row | {"id": next(ids), "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        for n, panel in enumerate(panels):
            place = {"x": n % 3 * WIDTH, "y": y + 1 + n // 3 * HEIGHT, "w": WIDTH, "h": HEIGHT}
            found.append(panel | {"id": next(ids), "gridPos": place})
        y += 1 + -(-len(panels) // 3) * HEIGHT
    return found


def _variable(name: str, metric: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": f"label_values({metric}, {name})", "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    return {
        "title": "redeliver-mw",
        "uid": "redeliver-mw",
        "tags": ["redeliver-mw"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}},
                _variable("job", "redeliver_first_attempts_total"),
                _variable("source", 'redeliver_first_attempts_total{job=~"$job"}'),
            ]
        },
        "panels": _panels(),
    }


def text() -> str:
    """Return the file's content."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(text(), "utf-8")
    else:
        print(text(), end="")
