# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how Spark reads parked messages: goal G4.

    python -m tests.bench.spark.limbo [--messages 1000000] [--rounds 5] [--url …]

The data source hands on Arrow batches. Beside it runs the same source, with the same query and the same tasks, but it
hands on tuples, as a first one is written. The sides take turns. What counts is the processor time of a task, from the
database to the batches that go to the JVM, which Spark's own code makes of tuples; it does not depend on what else the
machine does. The seconds of whole jobs stand beside it: they contain what Spark takes to plan a read, and to start its
Python workers. The bench prints Markdown, and exits with 1 where the goal is not met.
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
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

from redeliver_mw.limbo.scan import Scan
from redeliver_mw.pipeline import session
from redeliver_mw.pipeline.limbo_source import LimboPartition, LimboReader, LimboSource
from redeliver_mw.storage import schema
from redeliver_mw.storage.database import Database

from .load import Load

GOAL = 2.0
NARROW = "id BIGINT, target STRING, due_us BIGINT, publishes INT, failures INT, body_bytes BIGINT"
AT_ONCE = 20_000
DUE_MS = 1_795_953_600_000
BODY = b"x" * 280


class TupleReader(LimboReader):
    """Reads the limbo row by row."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, LimboPartition)
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
    """Reads the same limbo, in tuples."""

    @classmethod
    def name(cls) -> str:
        return "limbo_of_tuples"

    def reader(self, schema: StructType) -> LimboReader:
        given = super().reader(schema)
        return TupleReader(given._url, given._columns, given._pieces)


SIDES = (LimboSource, TupleSource)


def fill(url: str, count: int) -> None:
    """Fill the limbo with messages of 280 bytes, a seventh of them given up."""
    database = Database(url, lasting=False)
    database.open()
    owner = {
        "limbo_id": 1,
        "app": "shop",
        "broker": "mq:5672",
        "holder": "host 1",
        "token": 1,
        "beat": 1,
        "beat_us": 1,
        "lease_s": 15.0,
        "retry": 5,
        "next_id": count + 1,
    }
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
        "msg_id": n,
        "limbo_id": 1,
        "delivery_date": DUE_MS + n,
        "delivery_count": n % 7,
        "msg_src_name": "shop",
        "port_name": f"queue:orders{n % 40}",
        "msg_class": "javax.jms.BytesMessage",
        "msg_class_type": 1,
    }


def _parked(n: int) -> dict[str, Any]:
    return {
        "msg_id": n,
        "copy_id": f"{n:032x}",
        "lineage": f"{n:032x}",
        "generation": 0,
        "hop": 1,
        "failures": n % 7,
        "source": f"queue:orders{n % 40}",
        "reason": "",
        "parked_us": DUE_MS * 1000 + n,
        "body_bytes": len(BODY),
        "publishes": n % 3,
        "last_error": None if n % 3 else "refused: the queue is full",
        "marks": b"{}",
        "exact": b"{}",
        "wire": None,
    }


def measure(spark: SparkSession, side: type[LimboSource], url: str, ddl: str | None) -> tuple[float, float]:
    """Return the seconds to have the whole limbo in Spark, and the processor seconds of one task that does it alone."""
    reader = spark.read.format(side.name()).option("url", url)
    frame = (reader.schema(ddl) if ddl else reader).load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    took = time.perf_counter() - began
    source = side({"url": url})
    rows = source.reader(frame.schema).read(LimboPartition(None, None))
    worked = time.process_time()
    for _ in records_to_arrow_batches(rows, 10_000, frame.schema, source):
        pass
    return took, time.process_time() - worked


def compare(spark: SparkSession, url: str, ddl: str | None, rounds: int) -> tuple[float, float, float]:
    """Return medians: processor seconds of a task in Arrow and in tuples, and the ratio of seconds of whole jobs."""
    ours, theirs, seconds = [], [], []
    for number in range(-1, rounds):
        (our_s, our_work), (their_s, their_work) = (measure(spark, side, url, ddl) for side in SIDES)
        if number >= 0:
            ours.append(our_work)
            theirs.append(their_work)
            seconds.append(their_s / our_s)
    return statistics.median(ours), statistics.median(theirs), statistics.median(seconds)


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
        print("| columns | Arrow, a message | tuples, a message | ratio | goal | of whole jobs |")
        print("|---|---|---|---|---|---|")
        for what, ddl in (("all but the body", None), ("six", NARROW)):
            ours, theirs, seconds = compare(spark, url, ddl, given.rounds)
            met = met and theirs / ours >= GOAL
            costs = " | ".join(f"{cost / given.messages * 1e6:.2f} µs" for cost in (ours, theirs))
            print(f"| {what} | {costs} | {theirs / ours:.2f} | at least {GOAL:g} | {seconds:.2f} |")
        spark.stop()
    print(f"\nothers kept {load.others():.1f} cores busy meanwhile")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
