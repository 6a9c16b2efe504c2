# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Offers a clock that stands still until it is moved by hand."""

from ..memory.clock import ManualClock

__all__ = ["ManualClock"]
