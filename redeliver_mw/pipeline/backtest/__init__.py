# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes what another policy would have done with the messages that failed.

NumPy, and no Spark: rows in, rows out.

    history = History(rows_of_the_mart_recovery)
    rows = history.backtest([Candidate("now", present), *candidates])
    choice = recommend(rows, OBJECTIVES["fewer-attempts"], "now")

`docs/backtest.md` says what is assumed, and how exact the answers are.
"""

from .calibration import Check, how_wrong
from .grid import Shape, read_grid, shapes
from .history import History
from .objective import OBJECTIVES, Objective, Recommendation, objective_of, recommend
from .rows import BacktestRow, Candidate
from .search import Searched, search

__all__ = [
    "OBJECTIVES",
    "BacktestRow",
    "Candidate",
    "Check",
    "History",
    "Objective",
    "Recommendation",
    "Searched",
    "Shape",
    "how_wrong",
    "objective_of",
    "read_grid",
    "recommend",
    "search",
    "shapes",
]
