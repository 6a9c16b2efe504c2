# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which drained letters go back, where to and in which order, frozen in a folder. Importing this loads no Spark."""

from .job import plan

__all__ = ["plan"]
