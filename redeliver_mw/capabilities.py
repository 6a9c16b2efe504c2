# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Re-exports `redeliver_mw.adapter.capabilities` under its documented path."""

from .adapter.capabilities import (
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

__all__ = [
    "BrokerLimit",
    "Capabilities",
    "Mechanism",
    "ScheduleRange",
    "Settlement",
    "SettlementOutcome",
    "SourceCapabilities",
    "Trust",
    "VerbRecord",
]
