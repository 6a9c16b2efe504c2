# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares every mart with the queries that the tests hold them to, on a month of records: goal G11."""

from __future__ import annotations

from redeliver_mw.pipeline.marts.storms import USUAL, storms
from tests.pipeline.oracle import Oracle
from tests.pipeline.test_marts_oracle import differences, made

from .sides import Bench, Figure


def goals(bench: Bench) -> None:
    """Count the rows that differ, of all marts together; the goal is none."""
    oracle = Oracle(f"{bench.made.events}/*/*.parquet")
    marts = made(bench.events()) | {"storms": storms(bench.events())}
    rows = wrong = 0
    for name, frame in marts.items():
        ours = frame.toArrow().to_pylist()
        begin, end = (USUAL.enter_retries, USUAL.enter_amplification), (USUAL.leave_retries, USUAL.leave_amplification)
        theirs = oracle.storms(begin, end) if name == "storms" else oracle.mart(name)
        rows += len(theirs)
        wrong += len(differences(name, ours, theirs))
    what = "rows of all marts that differ from DuckDB's"
    bench.figures.append(Figure("G11", what, bench.made.asked, f"{wrong:,}", f"{rows:,}", wrong, "0", wrong == 0))
