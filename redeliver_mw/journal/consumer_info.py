# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the fields that are the same in every record of one consumer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """Holds who consumes, and where."""

    app: str
    host: str
    broker: str
    broker_kind: str
