# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Freezes in a folder which drained letters go back, where to and in which order.

Importing this package loads no Spark.
"""

from .job import plan

__all__ = ["plan"]
