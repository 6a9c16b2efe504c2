# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides what every drop-in wrapper needs, whatever its driver: for the authors of wrappers.

A wrapper brings five things of its driver's and gets the rest from here:

- a `UserConnection`, the user's connection and its loop: `later`, `hop`;
- a `SettlementScope`, where deliveries are settled: `is_open`, `write`, and the capture of the callback's own
  settlements;
- a `CopyPublisher`, on which copies go out: `store`, and `move` where the broker has transactions;
- a `CallbackRunner`, which calls the user's callback: `invoke`;
- `redelivering(...)`, whose options are `DropinKeywords`, checked by `DropinOptions`.
"""

from .bounded_log import BoundedLog
from .callback_runner import CallbackRunner
from .callback_settlements import ACK, Acked, RefusedHere, Requeued, because_of
from .companion import CompanionPublisher
from .copy_publisher import NOT_KNOWN, CopyPublisher, IsAlive, UserConnection
from .limbo import DropinLimbo
from .options import DropinKeywords, DropinOptions
from .settlement_scope import CallbackRun, RunListener, SettlementScope

__all__ = [
    "ACK",
    "NOT_KNOWN",
    "Acked",
    "BoundedLog",
    "CallbackRun",
    "CallbackRunner",
    "CompanionPublisher",
    "CopyPublisher",
    "DropinKeywords",
    "DropinLimbo",
    "DropinOptions",
    "IsAlive",
    "RefusedHere",
    "Requeued",
    "RunListener",
    "SettlementScope",
    "UserConnection",
    "because_of",
]
