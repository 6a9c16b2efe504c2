# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the seam between the middleware and a driver: what an adapter implements, and what a broker can do."""

from __future__ import annotations

from ..timers import Cancel
from .capabilities import (
    BrokerLimit,
    Capabilities,
    Mechanism,
    ScheduleRange,
    Settlement,
    SettlementOutcome,
    SourceCapabilities,
    Trust,
    VerbRecord,
)
from .protocol import (
    Adapter,
    ConnectionReport,
    OnAnswer,
    OnTransferred,
    Sink,
    Subscription,
    SupportsConnectionReports,
    SupportsDelayedRelease,
    SupportsInspection,
    SupportsLadderExtension,
    SupportsLedgerScope,
    SupportsLimits,
    SupportsPause,
    SupportsScheduleWait,
    TransferVerdict,
    Verdict,
)

__all__ = [
    "Adapter",
    "BrokerLimit",
    "Cancel",
    "Capabilities",
    "ConnectionReport",
    "Mechanism",
    "OnAnswer",
    "OnTransferred",
    "ScheduleRange",
    "Settlement",
    "SettlementOutcome",
    "Sink",
    "SourceCapabilities",
    "Subscription",
    "SupportsConnectionReports",
    "SupportsDelayedRelease",
    "SupportsInspection",
    "SupportsLadderExtension",
    "SupportsLedgerScope",
    "SupportsLimits",
    "SupportsPause",
    "SupportsScheduleWait",
    "TransferVerdict",
    "Trust",
    "VerbRecord",
    "Verdict",
]
