# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes what 24 other policies would have done, in four ways: goals G1 and G2, and how fast any way can be.

A message recovers half-way between its last failure and its success; it is tried at the instants of a policy, and fails
at those before. The back-test proper knows better than "half-way"; here all that counts is that all do the same work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from redeliver_mw.pipeline.time_bins import as_sql, lower_edge

from .sides import FREE, Aim, Bench, thrown_away

Totals = dict[tuple[int, str], tuple[int, int, int, int]]
"""By policy and destination: messages, those that recovered, attempts, microseconds until they did."""

SHAPES: Final = [(tries, first, times) for tries in (3, 4, 6, 8) for first in (0.5, 1.0, 4.0) for times in (1.0, 2.0)]
POLICIES: Final = [
    [0, *accumulate(round(first * times**nth * 1e6) for nth in range(tries - 1))] for tries, first, times in SHAPES
]
ANSWER: Final = "policy INT, destination STRING, n BIGINT, recovered BIGINT, attempts BIGINT, took_us BIGINT"
# Of messages that failed: their last records alone, which tell the first attempt and the last failure.
TERMINAL: Final = """
SELECT destination, last_failure_us - first_attempt_us AS lo_us,
    CASE WHEN outcome = 'accepted' THEN ts_us - first_attempt_us END AS hi_us
FROM events WHERE outcome <> 'redelivered' AND last_failure_us IS NOT NULL
"""
# The same, found by looking at all records of each message.
RAW: Final = """
SELECT any_value(destination) AS destination,
    max(ts_us) FILTER (outcome <> 'accepted') - min(first_attempt_us) AS lo_us,
    min(ts_us) FILTER (outcome = 'accepted') - min(first_attempt_us) AS hi_us
FROM events GROUP BY message_key HAVING count(*) FILTER (outcome <> 'accepted') > 0
"""


def goals(bench: Bench) -> None:
    """Measure G1 and G2, on one size."""
    events = bench.events()
    events.createOrReplaceTempView("events")
    (by_histogram, ours), (by_raw, raw), (by_join, joined), (reading, _) = bench.race(
        "what-if by histogram",
        lambda: histogram(bench),
        lambda: duck_histogram(bench),
        lambda: spark_join(bench),
        lambda: only_read(bench),
    )
    bins = bench.spark.sql(_BINNED.format(div="div", histories=TERMINAL)).toArrow()
    [(next_question, once_more)] = bench.race(None, lambda: _from_bins(bins))
    (by_arrow, kernel), (by_duck, told) = bench.race("what-if by Arrow", lambda: arrow(bench), lambda: duck_join(bench))
    assert ours == raw == once_more, "the histograms differ"
    assert joined == told == kernel, "the three ways to count exactly differ"
    assert close(ours, joined), "the histogram is off"
    what = "what-if: histogram of terminal rows beside"
    bench.tell("G1", f"{what} a SQL join of them (Spark)", by_histogram, by_join, Aim(10, at_most=False))
    bench.tell("G1", f"{what} one of all rows (DuckDB)", by_histogram, by_raw, Aim(2, at_most=False))
    bench.tell("", "bound of G1: only to read the terminal rows (Spark), beside the same join", reading, by_join, FREE)
    bench.tell(
        "", "what-if: 24 more policies from the same histogram, beside the same join", next_question, by_join, FREE
    )
    bench.tell("G2", "what-if: Arrow kernel beside a SQL join (DuckDB), on terminal rows", by_arrow, by_duck, Aim(1.5))


def only_read(bench: Bench) -> Totals:
    """Read the columns that each way needs, of the rows that it needs, and do nothing with them."""
    thrown_away(bench.spark.sql(TERMINAL))
    return {}


def close(found: Totals, true: Totals) -> bool:
    """Return whether recovered and attempts of each policy agree within 2 %.

    Half a bin may lie on the wrong side of a try.
    """
    for at in (1, 2):
        for policy in range(len(POLICIES)):
            ours, theirs = (sum(t[at] for (p, _), t in totals.items() if p == policy) for totals in (found, true))
            if abs(ours - theirs) > 0.02 * theirs:
                return False
    return found.keys() == true.keys()


# -- an exact count, by SQL -----------------------------------------------------------------------------------------


def spark_join(bench: Bench) -> Totals:
    policies = bench.spark.createDataFrame(list(enumerate(POLICIES)), "policy INT, times ARRAY<BIGINT>")
    policies.createOrReplaceTempView("policies")
    rows = bench.spark.sql(f"""
        SELECT policy, destination, count(*) AS n, sum(int(fails < size(times))),
            sum(least(fails + 1, size(times))), sum(if(fails < size(times), times[fails], 0))
        FROM (SELECT /*+ BROADCAST(policies) */ policy, destination, times,
                if(hi_us IS NULL, size(times), size(filter(times, t -> t < (lo_us + hi_us) div 2))) AS fails
            FROM ({TERMINAL}) CROSS JOIN policies)
        GROUP BY policy, destination""").collect()
    return _totals(tuple(row) for row in rows)


def duck_join(bench: Bench) -> Totals:
    values = ", ".join(f"({policy}, {times})" for policy, times in enumerate(POLICIES))
    return _totals(
        bench.sql(f"""
        SELECT policy, destination, count(*), sum(CAST(fails < len(times) AS INT)),
            sum(least(fails + 1, len(times))), sum(CASE WHEN fails < len(times) THEN times[fails + 1] ELSE 0 END)
        FROM (SELECT policy, destination, times, CASE WHEN hi_us IS NULL THEN len(times)
                ELSE len(list_filter(times, lambda t: t < (lo_us + hi_us) // 2)) END AS fails
            FROM ({TERMINAL}) CROSS JOIN (VALUES {values}) AS p(policy, times))
        GROUP BY policy, destination""")
    )


def _totals(rows: Any) -> Totals:
    return {(row[0], row[1]): (int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in rows}


# -- the same, in NumPy, where the rows are -------------------------------------------------------------------------


def arrow(bench: Bench) -> Totals:
    terminal: DataFrame = bench.spark.sql(TERMINAL)
    parts = terminal.mapInArrow(kernel, ANSWER)
    parts.createOrReplaceTempView("parts")
    rows = bench.spark.sql("""
        SELECT policy, destination, sum(n), sum(recovered), sum(attempts), sum(took_us)
        FROM parts GROUP BY policy, destination""").collect()
    return _totals(tuple(row) for row in rows)


def kernel(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what became of the messages of a task, under every policy."""
    totals: defaultdict[tuple[int, str], Any] = defaultdict(lambda: np.zeros(4, np.int64))
    for batch in batches:
        names = pc.dictionary_encode(batch.column(0))
        codes = names.indices.to_numpy(zero_copy_only=False)
        hi = batch.column(2)
        heals = pc.fill_null(hi, 0).to_numpy(zero_copy_only=False) + batch.column(1).to_numpy(zero_copy_only=False)
        heals = np.where(hi.is_null().to_numpy(zero_copy_only=False), np.iinfo(np.int64).max, heals // 2)
        for key, counts in _counted(heals, codes, names.dictionary.to_pylist()):
            totals[key] += counts
    keys, values = list(totals), np.array(list(totals.values()), np.int64).reshape(-1, 4)
    columns = [pa.array([policy for policy, _ in keys], pa.int32()), pa.array([name for _, name in keys], pa.string())]
    columns += [pa.array(values[:, at]) for at in range(4)]
    yield pa.RecordBatch.from_arrays(columns, ["policy", "destination", "n", "recovered", "attempts", "took_us"])


def _counted(heals: Any, codes: Any, names: list[str], n: Any = None) -> Iterator[tuple[tuple[int, str], Any]]:
    """Yield the messages, recovered, attempts and microseconds of each policy and destination.

    `n` says how many messages each item stands for.
    """
    order = np.argsort(codes, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(names)))])
    heals, many = heals[order], np.ones(len(heals), np.int64) if n is None else n[order]
    for policy, times in enumerate(POLICIES):
        instants = np.asarray([*times, 0], np.int64)
        fails = np.searchsorted(instants[:-1], heals, "left")
        healed = (fails < len(times)) * many
        per_item = (many, healed, np.minimum(fails + 1, len(times)) * many, healed * instants[fails])
        # A weighted bincount would add in floating point, which is not exact.
        sums = [np.diff(np.concatenate([[0], np.cumsum(item)])[ends]) for item in per_item]
        for name, counts in zip(names, np.stack(sums, axis=1), strict=True):
            yield (policy, name), counts


# -- by a histogram -------------------------------------------------------------------------------------------------

# The bin is null for messages that never recovered.
_BINNED: Final = f"""
SELECT destination, {as_sql("heals_us")} AS bin, count(*) AS n
FROM (SELECT destination, (lo_us + hi_us) {{div}} 2 AS heals_us FROM ({{histories}}) AS histories) AS healings
GROUP BY 1, 2
"""


def histogram(bench: Bench) -> Totals:
    return _from_bins(bench.spark.sql(_BINNED.format(div="div", histories=TERMINAL)).toArrow())


def duck_histogram(bench: Bench) -> Totals:
    bench.sql("SELECT 1")  # makes the view
    return _from_bins(bench.duck.sql(_BINNED.format(div="//", histories=RAW)).to_arrow_table())


def _from_bins(table: pa.Table) -> Totals:
    """Return the totals of all policies from the counted bins; a bin stands at its middle."""
    names = pc.dictionary_encode(table.column("destination").combine_chunks())
    codes = names.indices.to_numpy(zero_copy_only=False)
    bins = table.column("bin").combine_chunks()
    edges = np.array([lower_edge(number) for number in range(2 + pc.max(bins).as_py())])
    middle = (edges[:-1] + edges[1:]) // 2
    heals = middle[pc.fill_null(bins, 0).to_numpy(zero_copy_only=False)]
    heals = np.where(bins.is_null().to_numpy(zero_copy_only=False), np.iinfo(np.int64).max, heals)
    n = table.column("n").to_numpy()
    counted = _counted(heals, codes, names.dictionary.to_pylist(), n)
    return {key: (int(c[0]), int(c[1]), int(c[2]), int(c[3])) for key, c in counted}
