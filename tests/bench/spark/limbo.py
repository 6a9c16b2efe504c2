# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Parked messages into Spark: `python -m tests.bench.spark.limbo [--messages 1000000] [--rounds 5] [--url …]`: goal G4.

The data source hands on Arrow batches. Beside it the same source, same query, same tasks, which hands on tuples, as a
first one is written. Sides take turns; what counts is the median of the ratios within a round, of seconds and of
processor time, as the machine may have others on it. Prints Markdown, and exits with 1 where the goal is not met.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from redeliver_mw.limbo import schema
from redeliver_mw.limbo.database import Database
from redeliver_mw.limbo.scanning import Scan
from redeliver_mw.pipeline import session
from redeliver_mw.pipeline.limbo_source import LimboReader, LimboSource, Piece

from .load import Load, processor_s

GOAL = 2.0
NARROW = "id BIGINT, target STRING, due_us BIGINT, publishes INT, failures INT, body_bytes BIGINT"
SIDES = ("redeliver_limbo", "limbo_of_tuples")
AT_ONCE = 20_000
DUE_MS = 1_795_953_600_000
BODY = b"x" * 280


class TupleReader(LimboReader):
    """Row by row."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Piece)
        names = list(self._columns)
        truth = names.index("given_up") if "given_up" in names else None
        with Scan(self._url) as scan:
            for rows in scan.rows(names, partition.first, partition.last):
                for row in rows:
                    found = tuple(row)
                    if truth is not None:
                        found = (*found[:truth], found[truth] == 1, *found[truth + 1 :])
                    yield found


class TupleSource(LimboSource):
    """The same limbo, in tuples."""

    @classmethod
    def name(cls) -> str:
        return "limbo_of_tuples"

    def reader(self, schema: StructType) -> LimboReader:
        given = super().reader(schema)
        return TupleReader(given._url, given._columns, given._pieces)


def fill(url: str, count: int) -> None:
    """Messages of 280 bytes, a seventh of them given up."""
    database = Database(url, lasting=False)
    database.open()
    owner = {
        "limbo_id": 1, "app": "shop", "broker": "mq:5672", "holder": "host 1", "token": 1, "beat": 1, "beat_us": 1,
        "lease_s": 15.0, "retry": 5, "next_id": count + 1,
    }  # fmt: skip
    with database.writing() as connection:
        connection.execute(schema.owners.insert().values(owner))
        for start in range(0, count, AT_ONCE):
            ids = range(start, min(count, start + AT_ONCE))
            connection.execute(schema.messages.insert(), [_message(n) for n in ids])
            connection.execute(schema.parked.insert(), [_parked(n) for n in ids])
            connection.execute(schema.bodies.insert(), [{"msg_id": n, "msg_body": BODY} for n in ids])
    database.close()


def _message(n: int) -> dict[str, Any]:
    return {
        "msg_id": n, "limbo_id": 1, "delivery_date": DUE_MS + n, "delivery_count": n % 7, "msg_src_name": "shop",
        "port_name": f"queue:orders{n % 40}", "msg_class": "javax.jms.BytesMessage", "msg_class_type": 1,
    }  # fmt: skip


def _parked(n: int) -> dict[str, Any]:
    return {
        "msg_id": n, "copy_id": f"{n:032x}", "lineage": f"{n:032x}", "generation": 0, "hop": 1, "failures": n % 7,
        "source": f"queue:orders{n % 40}", "reason": "", "parked_us": DUE_MS * 1000 + n, "body_bytes": len(BODY),
        "publishes": n % 3, "last_error": None if n % 3 else "refused: the queue is full", "marks": b"{}",
        "exact": b"{}", "wire": None,
    }  # fmt: skip


def measure(spark: SparkSession, name: str, url: str, ddl: str | None) -> tuple[float, float]:
    """Seconds and processor seconds to have all of it in Spark."""
    reader = spark.read.format(name).option("url", url)
    frame = (reader.schema(ddl) if ddl else reader).load()
    began, worked = time.perf_counter(), processor_s()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, processor_s() - worked


def compare(spark: SparkSession, url: str, ddl: str | None, rounds: int) -> tuple[list[float], list[float], float]:
    """Ratios of seconds and of processor time, tuples to Arrow; and the best seconds of Arrow."""
    seconds, worked, best = [], [], float("inf")
    for number in range(-1, rounds):
        (ours, our_work), (theirs, their_work) = (measure(spark, name, url, ddl) for name in SIDES)
        if number >= 0:
            seconds.append(theirs / ours)
            worked.append(their_work / our_work)
            best = min(best, ours)
    return seconds, worked, best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url", help="an empty database; by default an SQLite file that goes away")
    given = parser.parse_args()
    load, met = Load(), True
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{folder}/limbo.db"
        fill(url, given.messages)
        spark = session("local[2]")
        spark.dataSource.register(TupleSource)
        print(f"{given.messages} parked messages, {given.rounds} rounds, two tasks at a time\n")
        print("| columns | Arrow, messages/s | tuples take | of the processor | goal |\n|---|---|---|---|---|")
        for what, ddl in (("all but the body", None), ("six", NARROW)):
            seconds, worked, best = compare(spark, url, ddl, given.rounds)
            times, work = statistics.median(seconds), statistics.median(worked)
            met = met and (ddl is not None or max(times, work) >= GOAL)
            rate = f"{given.messages / best:,.0f}"
            print(f"| {what} | {rate} | {times:.2f} times as long | {work:.2f} times as much | {GOAL:g} |")
        spark.stop()
    print(f"\nothers kept {load.others():.1f} cores busy meanwhile")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
