# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Offers tools for tests of consumers: a broker in memory, a clock moved by hand, faults, deliveries made by hand.

`AdapterContract` and `World` are imported from `contract`, and pytest with them, on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..memory import MemoryAdapter, MemoryBroker, PlacedMessage, StoredMessage, adapter_from_url, register_broker
from .app import TestApp
from .clock import ManualClock
from .deliveries import make_delivery, sent
from .faults import Faults

if TYPE_CHECKING:
    from .contract import AdapterContract, World

__all__ = [
    "AdapterContract",
    "Faults",
    "ManualClock",
    "MemoryAdapter",
    "MemoryBroker",
    "PlacedMessage",
    "StoredMessage",
    "TestApp",
    "World",
    "adapter_from_url",
    "make_delivery",
    "register_broker",
    "sent",
]


def __getattr__(name: str) -> Any:
    if name in ("AdapterContract", "World"):
        from . import contract

        return getattr(contract, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
