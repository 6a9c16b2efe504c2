# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds limbo, a SQL store for messages that wait longer than a broker or a process should hold them."""

from .admin import LimboAdmin, ParkedSummary
from .rows import Parked, Parking
from .store import Limbo
from .worker import LimboWorker

__all__ = ["Limbo", "LimboAdmin", "LimboWorker", "Parked", "ParkedSummary", "Parking"]
