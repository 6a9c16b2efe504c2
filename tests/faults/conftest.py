# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the limbo's PostgreSQL, for faults that strike it."""

from tests.storage.databases import postgres

__all__ = ["postgres"]
