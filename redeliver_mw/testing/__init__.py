# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""For tests of consumers: a broker in memory, a clock moved by hand, faults, deliveries made by hand."""

from __future__ import annotations

from ..memory import MemoryAdapter, MemoryBroker, Place, StoredMessage, adapter_from_url, register_broker
from .app import TestApp
from .clock import ManualClock
from .deliveries import make_delivery
from .faults import Faults

__all__ = [
    "Faults",
    "ManualClock",
    "MemoryAdapter",
    "MemoryBroker",
    "Place",
    "StoredMessage",
    "TestApp",
    "adapter_from_url",
    "make_delivery",
    "register_broker",
]
