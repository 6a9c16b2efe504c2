# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What is to go wrong, and when."""

from ..memory.faults import Fault, Faults

__all__ = ["Fault", "Faults"]
