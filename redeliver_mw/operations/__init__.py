# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what people do with dead letters, and the store that keeps both: no command line, no HTTP."""

from .collect import Collected, CollectedQueue, collect
from .listing import Group, Page, ShownLetter, StoredLetter, counts, groups, page, show
from .operation import Operation, cancel_operation, find_operation, last_operations, pause_operation
from .selection import Selection
from .store import Store, location

__all__ = [
    "Collected",
    "CollectedQueue",
    "Group",
    "Operation",
    "Page",
    "Selection",
    "ShownLetter",
    "Store",
    "StoredLetter",
    "cancel_operation",
    "collect",
    "counts",
    "find_operation",
    "groups",
    "last_operations",
    "location",
    "page",
    "pause_operation",
    "show",
]
