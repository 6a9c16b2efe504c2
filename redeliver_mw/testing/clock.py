# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A clock that stands still until it is moved."""

from ..memory.clock import ManualClock

__all__ = ["ManualClock"]
