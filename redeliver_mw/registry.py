# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Re-exports `redeliver_mw.adapter.registry` under its documented path."""

from .adapter.registry import (
    CLIENT_OPTIONS,
    EXTRA_OF_DRIVER,
    GROUP,
    NOT_BUILT,
    OURS,
    POLICY_OPTIONS,
    USUAL_DRIVER,
    BrokerUrl,
    adapter_for,
    dialects,
    parse_url,
)

__all__ = [
    "CLIENT_OPTIONS",
    "EXTRA_OF_DRIVER",
    "GROUP",
    "NOT_BUILT",
    "OURS",
    "POLICY_OPTIONS",
    "USUAL_DRIVER",
    "BrokerUrl",
    "adapter_for",
    "dialects",
    "parse_url",
]
