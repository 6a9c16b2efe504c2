# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Opens the two sides of the bench, Spark and DuckDB on the same two cores and the same files, and has their clocks."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
from pyspark.sql import DataFrame, SparkSession

from redeliver_mw.pipeline import schemas, session

from .load import processor_s
from .made import Made

CORES: Final = 2
AT: Final = 20_000_000  # records that the goals are set for: a smaller job is mostly what starting it costs
CHECKED: Final = 1_000_000  # records, up to which it is looked at, off the clock, that both sides gave the same rows
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Aim:
    """Holds a bound of a ratio: `ours / other` at most, or `other / ours` at least.

    If `always`, the bound holds at any size, not just from `AT` on. Without a bound the ratio is only shown.
    """

    bound: float | None
    at_most: bool = True
    always: bool = False

    def __str__(self) -> str:
        return "" if self.bound is None else f"at {'most' if self.at_most else 'least'} {self.bound:g}"

    def met(self, ratio: float, records: int) -> bool | None:
        """Return whether the ratio of a job of so many records is within the bound; None if there is none for it."""
        if self.bound is None or not (self.always or records >= AT):
            return None
        return ratio <= self.bound if self.at_most else ratio >= self.bound


FREE: Final = Aim(None, at_most=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """Holds one line of the table; the goal is about `ratio`, and `met` is None if there is no goal at this size.

    `worked` is the same ratio of processor time, where both were measured.
    """

    goal: str
    what: str
    records: int
    ours: str
    other: str
    ratio: float
    aim: str
    met: bool | None
    worked: float | None = None


@dataclass(frozen=True, slots=True)
class Took:
    """Holds seconds by the clock on the wall, and of processor time on all cores: of the best round each."""

    wall: float
    worked: float

    @property
    def told(self) -> str:
        return f"{self.wall:.2f} s" if self.wall >= 0.1 else f"{self.wall * 1000:.1f} ms"


@dataclass
class Bench:
    """Holds what every measurement needs: the sides, the data of one size, a folder for output, and how many rounds."""

    spark: SparkSession
    duck: duckdb.DuckDBPyConnection
    made: Made
    scratch: Path
    rounds: int
    figures: list[Figure] = field(default_factory=list)
    took: dict[str, Took] = field(default_factory=dict)  # our side, by what was measured: for how cost grows

    @property
    def checks(self) -> bool:
        return self.made.asked <= CHECKED

    @property
    def files(self) -> str:
        """Return the Parquet files, for DuckDB."""
        return f"read_parquet('{self.made.events}/*/*.parquet', hive_partitioning = true)"

    def events(self) -> DataFrame:
        """Return the Parquet files, for Spark."""
        return self.spark.read.schema(schemas.EVENTS_WITH_DAY).parquet(str(self.made.events))

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query of DuckDB's, over the view `events`."""
        self.duck.execute(f"CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM {self.files}")
        return self.duck.execute(query).fetchall()

    def throw_away(self, query: str) -> None:
        """Compute every column of every row of a query, as `thrown_away` does."""
        self.sql(f"EXPLAIN ANALYZE {query}")

    def race(self, name: str | None, *sides: Callable[[], T]) -> list[tuple[Took, T]]:
        """Return what each side took and answered last; ours is the first.

        The sides take turns, and the best round counts. Give no name if the cost does not depend on the records.
        """
        best = [Took(math.inf, math.inf)] * len(sides)
        answers: list[T] = []
        for _ in range(self.rounds):
            answers = []
            for side, run in enumerate(sides):
                gc.collect()
                worked, start = processor_s(), time.perf_counter()
                answers.append(run())
                wall, worked = time.perf_counter() - start, processor_s() - worked
                best[side] = Took(min(best[side].wall, wall), min(best[side].worked, worked))
        if name is not None:
            self.took[name] = best[0]
        return list(zip(best, answers, strict=True))

    def tell(self, goal: str, what: str, ours: Took, other: Took, aim: Aim) -> None:
        """Add a figure of two sides."""
        ratio = ours.wall / other.wall if aim.at_most else other.wall / ours.wall
        worked = _over(ours.worked, other.worked) if aim.at_most else _over(other.worked, ours.worked)
        records = self.made.asked
        met = aim.met(ratio, records)
        self.figures.append(Figure(goal, what, records, ours.told, other.told, ratio, str(aim), met, worked))


def _over(one: float, other: float) -> float | None:
    """Return the ratio of processor times; None if the second is below what the system counts."""
    return one / other if other else None


def thrown_away(frame: DataFrame) -> None:
    """Compute every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def open_sides(scratch: Path) -> tuple[SparkSession, duckdb.DuckDBPyConnection]:
    """Open both sides, with so many cores, and DuckDB with as much memory as Spark's driver has by default."""
    spark = session(f"local[{CORES}]")
    duck = duckdb.connect()
    spill = scratch / "duckdb"
    spill.mkdir(parents=True, exist_ok=True)
    memory = spark.conf.get("spark.driver.memory") or "4g"
    duck.execute(f"SET threads = {CORES}; SET memory_limit = '{memory.rstrip('g')}GiB'; SET temp_directory = '{spill}'")
    duck.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
    return spark, duck
