# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what people do with dead letters, and the store that keeps both: no command line, no HTTP."""

from .collect import Collected, CollectedQueue, collect
from .listing import Group, Page, ShownLetter, StoredLetter, counts, groups, page, show
from .store import Store, location

__all__ = [
    "Collected",
    "CollectedQueue",
    "Group",
    "Page",
    "ShownLetter",
    "Store",
    "StoredLetter",
    "collect",
    "counts",
    "groups",
    "location",
    "page",
    "show",
]
