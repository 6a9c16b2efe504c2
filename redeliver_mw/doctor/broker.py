# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the broker as a whole: its version, connections, alarms, persistence, and what it does to any message."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from ..adapter.capabilities import Capabilities, Trust
from ..adapter.inspection import BrokerFact, BrokerFactName
from ..adapter.protocol import Adapter, SupportsConnectionReports
from .finding import Finding, not_known, ok, warning, wrong

CONNECT_PATIENCE = 5.0  # seconds for the connection that copies are published on
REFUSED_PATIENCE = 1.0  # seconds, once it was refused: it is tried again meanwhile
TITLES: Final = {"activemq": "ActiveMQ", "artemis": "Artemis", "rabbitmq": "RabbitMQ"}

# The problem of each fact, and whether it is wrong in any case.
_PROBLEMS: Final[dict[BrokerFactName, tuple[str, bool]]] = {
    "alarm": ("alarm-raised", True),
    "persistence": ("persistence-off", True),
    "journal-sync": ("journal-sync-off", False),
    "scheduler": ("scheduler-off", True),
    "copy-expiry": ("copies-expire", True),
    "copy-persistence": ("copies-not-persistent", True),
    "frame-size": ("frame-size-small", False),
}


def check_version(capabilities: Capabilities, where: str) -> Finding:
    """Return whether what we know of this version was tried on this version."""
    title = TITLES.get(capabilities.broker_kind, capabilities.broker_kind)
    name = f"{title} {capabilities.broker_version or 'of an unknown version'}"
    tried = any(verb.basis in (Trust.PROVED, Trust.PROBED) for verb in capabilities.verbs)
    if not capabilities.verbs or tried:
        return ok("broker-version", where, name)
    return warning(
        "broker-version-untried",
        where,
        f"{name}: its settlement verbs are taken to be those of another version, and were not tried",
        "Run the contract tests against it, or use a version in the table of docs/verbs.md",
    )


def check_connections(adapter: Adapter, where: str) -> Finding:
    """Return whether every connection that the adapter needs was opened. Waits for those that are being opened."""
    if not isinstance(adapter, SupportsConnectionReports):
        return not_known("connections", where, "the adapter does not report its connections")
    began = time.monotonic()
    reports = adapter.connection_reports()
    while away := [report for report in reports if report.state != "connected"]:
        patience = REFUSED_PATIENCE if all(report.last_error for report in away) else CONNECT_PATIENCE
        if time.monotonic() > began + patience:
            break
        time.sleep(0.02)
        reports = adapter.connection_reports()
    if not away:
        names = " and ".join(report.role for report in reports)
        return ok("connections", where, f"{len(reports)} connections are open: {names}")
    one = away[0]
    return wrong(
        "connections-limited",
        where,
        f"the connection to {one.role} cannot be opened beside the first: {one.last_error or 'no answer'}",
        "Allow this user at least two connections at a time for each process, and one more for each topic",
    )


def check_facts(facts: Sequence[BrokerFact], where: str) -> Iterator[Finding]:
    """Yield a finding for each fact that the adapter has reported."""
    for fact in facts:
        problem, always = _PROBLEMS[fact.name]
        if fact.good is None:
            yield not_known(fact.name, where, fact.reason, fact.change)
        elif fact.good:
            yield ok(fact.name, where, fact.reason)
        else:
            yield (wrong if always else warning)(problem, where, fact.reason, fact.change)
