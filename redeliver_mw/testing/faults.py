# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Offers a plan of what goes wrong on a memory broker, and when."""

from ..memory.faults import Fault, Faults

__all__ = ["Fault", "Faults"]
