# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reports the state of connections for `App.health()`, and which of it keeps an App from being ready."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ..adapter.protocol import Adapter, ConnectionReport, SupportsConnectionReports
from ..message import Destination


def connection_health(adapter: Adapter) -> dict[str, dict[str, Any]]:
    """Return plain values for each connection, by its role; empty for an adapter that does not report them."""
    reports = adapter.connection_reports() if isinstance(adapter, SupportsConnectionReports) else ()
    return {report.role: _plain(report) for report in reports}


def not_subscribed(adapter: Adapter, source: Destination, connections: Mapping[str, Any]) -> str:
    """Return why a source is not subscribed to: there is no connection, or the broker's objection to the source."""
    if isinstance(adapter, SupportsConnectionReports) and (trouble := adapter.source_trouble(source)):
        return trouble
    if any(not one["connected"] for one in connections.values()):
        return "there is no connection"
    return "it is being subscribed to"


def not_ready(health: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what keeps an App from being ready, by its `health()`.

    The list has `what` and `why` of each cause, and the `code` of the error of a connection; it is empty if the App is
    ready.

    Sources that the application itself, or a breaker, has paused are no obstacle.
    """
    found = [
        {"what": f"connection {role}", "why": _why_not(one), **_code_of(one)}
        for role, one in health.get("connections", {}).items()
        if not one["connected"] or one["blocked"]
    ]
    if health.get("stopping"):
        found.insert(0, {"what": "app", "why": "it is stopping"})
    elif not health["started"]:
        found.insert(0, {"what": "app", "why": "it is starting"})
    else:
        found += [
            {"what": source, "why": one["why_not_consuming"]}
            for source, one in health["sources"].items()
            if not one["subscribed"] or one["why_paused"]
        ]
    return found


def _why_not(one: Mapping[str, Any]) -> str:
    if one["connected"]:
        return f"blocked: {one['blocked']}"
    error = f": {one['last_error']}" if one["last_error"] else ""
    return f"{one['state']} since {one['since']}{error}"


def _code_of(one: Mapping[str, Any]) -> dict[str, str]:
    code = None if one["connected"] else one.get("last_error_code")
    return {"code": code} if code else {}


def _plain(report: ConnectionReport) -> dict[str, Any]:
    return {
        "connected": report.state == "connected",
        "state": report.state,
        "since": _utc(report.since),
        "last_error": report.last_error or None,
        "last_error_code": report.last_error_code or None,
        "last_error_at": _utc(report.last_error_at) if report.last_error else None,
        "blocked": report.blocked or None,
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
