# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Re-exports `redeliver_mw.pipeline.backtest.lake_input` under its documented path."""

from .backtest.lake_input import known, policies_in_use

__all__ = [
    "known",
    "policies_in_use",
]
