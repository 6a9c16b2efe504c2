# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Limbo: a SQL store for messages that wait longer than a broker or a process should hold them."""

from .clerk import Clerk
from .looking import Desk, Listed
from .rows import Parked, Parking
from .store import Limbo

__all__ = ["Clerk", "Desk", "Limbo", "Listed", "Parked", "Parking"]
