# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The two sides of the bench, Spark and DuckDB on the same two cores and the same files, and the clock between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
from pyspark.sql import DataFrame, SparkSession

from redeliver_mw.pipeline import schemas, session

from .made import Made

CORES: Final = 2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `ratio` is what the goal is about; `met` None: there is no goal."""

    goal: str
    what: str
    records: int
    ours: str
    other: str
    ratio: float
    aim: str
    met: bool | None


@dataclass
class Bench:
    """What every measurement needs: the sides, the data of one size, a folder for what is written, how often."""

    spark: SparkSession
    duck: duckdb.DuckDBPyConnection
    made: Made
    scratch: Path
    repeats: int
    figures: list[Figure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # by what was measured; for how cost grows

    @property
    def files(self) -> str:
        """The Parquet files, for DuckDB."""
        return f"read_parquet('{self.made.events}/*/*.parquet', hive_partitioning = true)"

    def events(self) -> DataFrame:
        """The same, for Spark."""
        return self.spark.read.schema(schemas.EVENTS_WITH_DAY).parquet(str(self.made.events))

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query of DuckDB's, over the view `events`."""
        self.duck.execute(f"CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM {self.files}")
        return self.duck.execute(query).fetchall()

    def keep(self, query: str, name: str) -> None:
        """The rows of a query into a table in memory, in the place of what Spark throws away."""
        self.sql(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")

    def race(self, name: str, ours: Callable[[], T], other: Callable[[], T]) -> tuple[float, float, T, T]:
        """Seconds of both, the best of so many rounds, and what they answered last. They take turns."""
        best = [float("inf"), float("inf")]
        answers: list[T] = []
        for _ in range(self.repeats):
            answers = []
            for side, run in enumerate((ours, other)):
                began = time.perf_counter()
                answers.append(run())
                best[side] = min(best[side], time.perf_counter() - began)
        self.seconds[name] = best[0]
        return best[0], best[1], answers[0], answers[1]

    def tell(self, goal: str, what: str, ours: float, other: float, aim: str, *, most: float, by: str = "ours") -> None:
        """A ratio `ours / other` that should be at most `most`; `by="other"`: `other / ours`, at least `most`."""
        ratio = ours / other if by == "ours" else other / ours
        met = ratio <= most if by == "ours" else ratio >= most
        records = self.made.asked
        self.figures.append(Figure(goal, what, records, f"{ours:.2f} s", f"{other:.2f} s", ratio, aim, met))


def thrown_away(frame: DataFrame) -> None:
    """Computes every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def open_sides(scratch: Path) -> tuple[SparkSession, duckdb.DuckDBPyConnection]:
    """Both, with so many cores, and DuckDB with as much memory as Spark's driver has by default."""
    spark = session(f"local[{CORES}]")
    duck = duckdb.connect()
    spill = scratch / "duckdb"
    spill.mkdir(parents=True, exist_ok=True)
    memory = spark.conf.get("spark.driver.memory") or "4g"
    duck.execute(f"SET threads = {CORES}; SET memory_limit = '{memory.rstrip('g')}GiB'; SET temp_directory = '{spill}'")
    duck.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
    return spark, duck
