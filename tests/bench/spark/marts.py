# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares marts and compaction with DuckDB, and a stream with a batch: goals G3, G5, G6 and G12.

The queries do the marts' work on what `made` makes, where every history is whole and in order. Goal G11 is that the
marts are right on any history. Whether both sides give the same rows is checked off the clock, where that is soon done.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from redeliver_mw.journal.records import FIELDS, SCHEMA
from redeliver_mw.pipeline import Compacted, compact
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.lake.lake import Lake
from redeliver_mw.pipeline.marts.attempt_curve import attempt_curve
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.storms import storms
from redeliver_mw.pipeline.storm_watch import HOUR_US, recent_storms, watch_storms

from .made import END_US
from .sides import Aim, Bench, Figure, Took, thrown_away

FROM: Final = 5_000_000  # records, for which G12 is held: of fewer, most of the time is what starting each job costs
CURVE: Final = """
WITH tried AS (
    SELECT dt, destination, delivery_count, outcome, lag(error_type) OVER (
        PARTITION BY message_key, generation, destination ORDER BY delivery_count) AS error_type
    FROM events WHERE NOT (outcome = 'accepted' AND delivery_count = 1)
    UNION ALL
    SELECT dt, destination, delivery_count, outcome, NULL
    FROM events WHERE outcome = 'accepted' AND delivery_count = 1
), counted AS (
    SELECT dt AS day, destination, error_type, delivery_count AS attempt, count(*) AS n,
        count(*) FILTER (outcome = 'accepted') AS n_accepted
    FROM tried GROUP BY ALL
)
SELECT counted.*, n_accepted / n AS p,
    greatest(0, (p + zz / (2 * n) - z * sqrt(p * (1 - p) / n + zz / (4 * n * n))) / (1 + zz / n)) AS lo,
    least(1, (p + zz / (2 * n) + z * sqrt(p * (1 - p) / n + zz / (4 * n * n))) / (1 + zz / n)) AS hi
FROM counted, (SELECT CAST(1.959963984540054 AS DOUBLE) AS z, z * z AS zz)
"""
MESSAGES: Final = """
SELECT message_key, generation, destination, max_by(broker, delivery_count) AS broker,
    max_by(outcome, delivery_count) AS outcome, max_by(reason, delivery_count) AS reason,
    min_by(error_fingerprint, delivery_count) AS fingerprint, min_by(error_type, delivery_count) AS error_type,
    max_by(policy_version, delivery_count) AS policy_version, count(*) AS attempts,
    count(*) FILTER (outcome <> 'accepted') AS failures, min(ts_us) AS first_us,
    min(ts_us) FILTER (outcome <> 'accepted') AS first_failure_us,
    max(ts_us) FILTER (outcome <> 'accepted') AS last_failure_us,
    min(ts_us) FILTER (outcome = 'accepted') AS recovered_us, max(ts_us) AS last_us, sum(handler_us) AS handler_us,
    list({'attempt': delivery_count, 'ts_us': ts_us, 'outcome': outcome, 'fingerprint': error_fingerprint,
        'delay_us': delay_us, 'handler_us': handler_us} ORDER BY delivery_count) AS history
FROM events WHERE NOT (outcome = 'accepted' AND delivery_count = 1)
GROUP BY message_key, generation, destination
"""
# All marts as one would write them down for a month of whole histories: no clocks, no clean-up, no verdicts on poison.
MART_TABLES: Final = {
    "attempt_curve": CURVE,
    "recovery": """
SELECT CAST(make_timestamp(first_failure_us) AS DATE) AS day, destination, fingerprint, policy_version,
    floor(ln(greatest(last_failure_us - first_failure_us, 1)) * 92) AS lo_bin,
    floor(ln(recovered_us - first_failure_us) * 92) AS hi_bin, count(*) AS n
FROM messages GROUP BY ALL""",
    "poison": "SELECT message_key, destination, fingerprint, attempts, first_us, last_us FROM messages "
    "WHERE failures >= 3 AND recovered_us IS NULL",
    "fingerprints": "SELECT error_fingerprint, any_value(error_message), count(*), min(ts_us), max(ts_us) FROM events "
    "WHERE error_fingerprint IS NOT NULL GROUP BY error_fingerprint",
    "waste": "SELECT CAST(make_timestamp(ts_us) AS DATE) AS day, destination, error_fingerprint, count(*), "
    "sum(handler_us) FROM events WHERE outcome <> 'accepted' GROUP BY ALL",
    "storms": "SELECT ts_us - ts_us % 10000000 AS window_us, destination, count(*), "
    "count(*) FILTER (delivery_count = 1) FROM events GROUP BY ALL",
    "dead_letter_flow": "SELECT CAST(make_timestamp(ts_us) AS DATE) AS day, destination, reason, count(*) FROM events "
    "WHERE outcome IN ('dead_lettered', 'discarded') GROUP BY ALL",
    "clocks": "SELECT CAST(make_timestamp(ts_us) AS DATE) AS day, host, min(ts_us), max(ts_us) FROM events "
    "GROUP BY ALL",
}
# Equal sums of both sides: of counts, of times since the first failure, and of what is in the arrays.
SUMS: Final = {
    "attempts": "attempts",
    "failures": "failures",
    "handler_us": "handler_us",
    "waited": "last_failure_us - first_failure_us",
    "healed": "recovered_us - first_failure_us",
}
_DUCK_TYPES: Final = {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "list<string>": "VARCHAR[]",
}


def single_marts(bench: Bench) -> None:
    """Measure G3, on one size."""
    _curve(bench)
    _messages(bench)


def _curve(bench: Bench) -> None:
    (ours, rows), (other, theirs) = bench.race(
        "attempt_curve",
        lambda: [tuple(row) for row in attempt_curve(bench.events()).collect()],
        lambda: bench.sql(CURVE),
    )
    assert _sorted(rows) == _sorted(theirs), "the attempt curves differ"
    bench.tell("G3", "`attempt_curve` beside DuckDB", ours, other, Aim(8))


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Return rows that can be compared: floats have nine digits."""
    return sorted(tuple(f"{v:.9f}" if isinstance(v, float) else str(v) for v in row) for row in rows)


def _messages(bench: Bench) -> None:
    (ours, _), (other, _) = bench.race(
        "messages", lambda: thrown_away(messages(bench.events())), lambda: bench.throw_away(MESSAGES)
    )
    if bench.checks:
        assert _sums(messages(bench.events())) == _duck_sums(bench), "the messages differ"
    bench.tell("G3", "`messages` beside DuckDB", ours, other, Aim(4))


def _sums(frame: DataFrame) -> tuple[int, ...]:
    told = [sf.expr(f"sum({what})").alias(name) for name, what in SUMS.items()]
    rows = frame.agg(sf.count("*"), *told, sf.sum(sf.size("history"))).collect()
    return tuple(int(value) for value in rows[0])


def _duck_sums(bench: Bench) -> tuple[int, ...]:
    told = ", ".join(f"sum({what})" for what in SUMS.values())
    rows = bench.sql(f"SELECT count(*), {told}, sum(len(history)) FROM ({MESSAGES})")
    return tuple(int(value) for value in rows[0])


def whole_pipeline(bench: Bench) -> None:
    """Measure G5 and G12, on one size."""
    lake, folder = bench.scratch / "lake", bench.scratch / "by-duckdb"

    def ours() -> int:
        shutil.rmtree(lake, ignore_errors=True)
        done: Compacted = compact(bench.spark, bench.made.journal, lake)
        return done.records

    def other() -> int:
        shutil.rmtree(folder, ignore_errors=True)
        columns = {name: _DUCK_TYPES[kind.type] for name, kind in SCHEMA.items()}
        [(rows,)] = bench.duck.execute(f"""
            COPY (SELECT *, CAST(make_timestamp(ts_us) AS DATE) AS dt FROM read_json(
                '{bench.made.journal}/*.jsonl', format = 'newline_delimited', columns = {columns}))
            TO '{folder}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (dt))""").fetchall()
        return int(rows)

    (mine, records), (theirs, rows) = bench.race("compact", ours, other)
    assert records == rows == bench.made.records, (records, rows, bench.made.records)
    made = _fingerprint(bench, f"{bench.made.events}/*/*.parquet")
    assert made == _fingerprint(bench, f"{lake}/events/*/*/*.parquet"), "our Parquet holds other records"
    assert made == _fingerprint(bench, f"{folder}/*/*.parquet"), "DuckDB's Parquet holds other records"
    bench.tell("G5", "`compact`: a journal to Parquet, beside DuckDB", mine, theirs, Aim(5, always=True))
    [(marts, _), (script, _)] = _insights(bench, Lake(lake), folder)
    shutil.rmtree(folder)
    shutil.rmtree(lake)
    ours_whole, script_whole = (
        Took(one.wall + two.wall, one.worked + two.worked) for one, two in ((mine, marts), (theirs, script))
    )
    what = "`compact` and `insights`: a journal to all marts, beside a DuckDB script"
    bench.tell("G12", what, ours_whole, script_whole, Aim(4, always=bench.made.asked >= FROM))


def _fingerprint(bench: Bench, files: str) -> tuple[Any, ...]:
    """Return a fingerprint of records: it is the same for the same records, in whatever order."""
    query = f"SELECT count(*), sum(hash({', '.join(FIELDS)})) FROM read_parquet('{files}')"
    return tuple(bench.duck.execute(query).fetchall()[0])


def _insights(bench: Bench, lake: Lake, folder: Path) -> list[tuple[Took, None]]:
    """Measure the writing of all marts: ours, and the script's, which reads the Parquet that it made itself."""
    out = bench.scratch / "marts-by-duckdb"

    def ours() -> None:
        insights(bench.spark, lake)

    def other() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        bench.duck.execute(f"CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM read_parquet('{folder}/*/*.parquet')")
        bench.duck.execute(f"COPY ({MESSAGES}) TO '{out}/messages.parquet' (FORMAT parquet, COMPRESSION zstd)")
        bench.duck.execute(
            f"CREATE OR REPLACE TEMP VIEW messages AS SELECT * FROM read_parquet('{out}/messages.parquet')"
        )
        for name, query in MART_TABLES.items():
            bench.duck.execute(f"COPY ({query}) TO '{out}/{name}.parquet' (FORMAT parquet, COMPRESSION zstd)")

    found = bench.race("insights", ours, other)
    shutil.rmtree(out)
    (took, _), (script, _) = found
    rate = f"{bench.made.records / took.wall:,.0f} records a second"
    bench.figures.append(
        Figure(
            "",
            f"`insights`: all marts, written ({rate}), beside the script's",
            bench.made.asked,
            f"{took.wall:.1f} s",
            f"{script.wall:.1f} s",
            took.wall / script.wall,
            "",
            None,
            took.worked / script.worked,
        )
    )
    return found


def stream(bench: Bench) -> None:
    """Measure G6, on one size: windows of ten seconds by destination, all files as a stream, and the same in batch."""
    out = bench.scratch / "watch"

    def as_stream() -> float:
        """Return the seconds that Spark has spent around the micro-batches."""
        shutil.rmtree(out, ignore_errors=True)
        files = bench.spark.readStream.schema(bench.events().schema).parquet(str(bench.made.events))
        query = watch_storms(files, out, every=None, now_us=lambda: END_US)
        query.awaitTermination()
        spent = [progress.durationMs for progress in query.recentProgress]
        return sum(ms["triggerExecution"] - ms.get("addBatch", 0) for ms in spent) / 1000

    def in_batch() -> float:
        thrown_away(storms(bench.events()))
        return 0.0

    (streamed, around), (batch, _) = bench.race("storms", as_stream, in_batch)
    if bench.checks:
        newest = sf.max("window_us").over(Window.partitionBy("destination"))
        known = storms(bench.events()).withColumn("newest", newest).where(f"window_us > newest - {HOUR_US}")
        ours, theirs = recent_storms(bench.spark, out).collect(), known.drop("newest").collect()
        assert sorted(map(str, ours)) == sorted(map(str, theirs)), "the stream's windows differ from the batch's"
    shutil.rmtree(out)
    bench.tell("G6", "`storms`: a stream's rate beside the same in batch", streamed, batch, Aim(0.5, at_most=False))
    what, times = "of that: Spark's work around micro-batches, beside all of it", (f"{around:.2f} s", streamed.told)
    bench.figures.append(Figure("", what, bench.made.asked, *times, around / streamed.wall, "", None))
