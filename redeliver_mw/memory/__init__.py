# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides memory://, a broker in this process that settles, counts and loses messages as the real ones do.

`personality` selects the real broker; `personality.py` lists the behaviour observed on each. The contract that holds
for every adapter holds for this one; tests, demos and the simulation run on it.
"""

from __future__ import annotations

from .adapter import MemoryAdapter
from .broker import MemoryBroker, PlacedMessage
from .clock import ManualClock
from .faults import Faults
from .link import HeldDelivery, MemoryLink
from .personality import PERSONALITIES, StoredMessage
from .url import adapter_from_url, broker_from_url, register_broker

__all__ = [
    "PERSONALITIES",
    "Faults",
    "HeldDelivery",
    "ManualClock",
    "MemoryAdapter",
    "MemoryBroker",
    "MemoryLink",
    "PlacedMessage",
    "StoredMessage",
    "adapter_from_url",
    "broker_from_url",
    "register_broker",
]
