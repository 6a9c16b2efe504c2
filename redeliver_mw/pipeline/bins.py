# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Re-exports `redeliver_mw.pipeline.time_bins` under its documented path."""

from .time_bins import as_sql, bin_of, lower_edge

__all__ = [
    "as_sql",
    "bin_of",
    "lower_edge",
]
