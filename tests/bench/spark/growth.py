# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the cost, which is processor time, of few and of many records: the goal is that it grows linearly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .made import Made
from .sides import Figure, Took

DAILY = 1_000_000_000
COSTS = {"compact": "`compact`", "insights": "`insights`, all marts of that day"}
MOST = 1.25  # times the records' own growth; below 1 is what starting a job costs, shared by more of them


def figures(took: Mapping[int, Mapping[str, Took]]) -> Iterator[Figure]:
    """Yield a figure for everything that was measured at every size: from the smallest to the largest."""
    if len(took) < 2:
        return
    small, large = min(took), max(took)
    for name, least in took[small].items():
        if (most := took[large].get(name)) is None:
            continue
        ours, other = most.worked / large, least.worked / small
        what = f"processor time of a record at {large / 1e6:g} M beside {small / 1e6:g} M: {name}"
        times = (f"{ours * 1e6:.2f} µs", f"{other * 1e6:.2f} µs")
        yield Figure("linear", what, 0, *times, ours / other, f"at most {MOST}", ours / other <= MOST)


def sizing(made: Made, took: Mapping[str, Took]) -> Iterator[str]:
    """Yield Markdown that says what a billion attempts a day would take at the cost of one in `made`."""
    records = made.records
    journal, lake = (sum(file.stat().st_size for file in place.rglob("*.*")) for place in (made.journal, made.events))
    yield f"**Computed, not measured:** a billion attempts a day, at what one of {records / 1e6:.3g} million cost here."
    yield ""
    yield "| what | of one attempt | of a billion |"
    yield "|---|---:|---:|"
    yield f"| the journal's lines | {journal / records:,.0f} B | {journal / records / 1e3:,.2f} TB |"
    yield f"| the lake's Parquet | {lake / records:,.0f} B | {lake / records:,.0f} GB |"
    for name, what in COSTS.items():
        if name in took:
            each = took[name].worked / records
            cores = each * DAILY / 3600
            yield f"| {what} | {each * 1e6:.2f} µs of a core | {cores:,.1f} core hours |"
