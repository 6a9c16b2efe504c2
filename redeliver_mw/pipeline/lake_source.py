# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a table of a lake, `spark.read.format("redeliver").load(lake)`, in Spark's tasks by Arrow.

Options:

=================  ======================================================================================
`table`            `events` (the default), `healthy_counts`, `dead_letters`, `quarantine`, `backtest`, or a mart's
                   name
`since`, `until`   rows from this time on, and before this time, as in `--since` and `--until`
=================  ======================================================================================

The rows are those of the run that was published last when Spark plans the query. Spark reads all columns in any case;
to read fewer, give a schema with fewer of them, `spark.read.schema("dl_id STRING, dlq STRING")`. With
`spark.sql.python.filterPushdown.enabled` conditions on the time, or on `dt`, spare files as `since` and `until` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from ..errors import ConfigError, RedeliverError
from .arrow_schemas import arrow_schema
from .draining.staging import TABLE as LETTERS
from .errors import readable_errors
from .files import files_at
from .lake.lake import Lake
from .lake.table_files import TABLES, files_of, letter_files, looked_again
from .manifests import HEALTHY, DataFile
from .pushed_filters import PushedFilters
from .time_range import DAY_US, TimeRange, day_of, micros, span, whole_days

_WHERE: Final = "redeliver"
_OPTIONS: Final = ("path", "table", "since", "until")
_INSTANTS: Final = {"events": "ts_us", HEALTHY: "ts_us", LETTERS: "dead_us", "storms": "window_us"}
_DAY: Final = "day"  # the first column of the marts that have one
_TOGETHER: Final = 32 << 20  # bytes of small files that one task reads
_ROWS: Final = 65_536  # rows of one batch


@dataclass(frozen=True)
class FilePart:
    """Describes a file for a task: `all_rows` are in the range of time, or some may not be; `without` these letters."""

    path: str
    all_rows: bool
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LakePartition(InputPartition):
    """Lists the files that one task reads."""

    files: tuple[FilePart, ...]


class LakeSource(DataSource):
    """Implements the data source `redeliver`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        if others := sorted(set(map(str.lower, options)) - set(_OPTIONS)):
            raise ConfigError(
                f"there is no option {others[0]!r}",
                where=_WHERE,
                cure=f"Options are {', '.join(_OPTIONS[1:])}",
                code="option-value",
            )

    @classmethod
    def name(cls) -> str:
        return "redeliver"

    def schema(self) -> str:
        return TABLES[self._table()]

    def reader(self, schema: StructType) -> LakeReader:
        table = self._table()
        place = self.options.get("path", "").strip()
        if not place:
            raise ConfigError("no lake", where=_WHERE, cure='Write .load("lake"), with its path', code="option-value")
        columns = _columns_of(schema, table)
        place = files_at(place).url()  # executors have other working folders
        return LakeReader(place, table, columns, _range(table, self.options.get("since"), self.options.get("until")))

    def _table(self) -> str:
        table = self.options.get("table", "events").strip()
        if table not in TABLES:
            raise ConfigError(
                f"{table!r} is no table of a lake",
                where="option table",
                cure=f"Take one of {', '.join(TABLES)}",
                code="option-value",
            )
        return table


class LakeReader(DataSourceReader):
    """Reads columns of one table, with their types, from the files of the lake's present state."""

    def __init__(self, place: str, table: str, columns: pa.Schema, wanted: TimeRange) -> None:
        self._place, self._table, self._columns, self._wanted = place, table, columns, wanted
        self._spared = TimeRange()
        vars(self)["pushFilters"] = PushedFilters(self._push)

    def _push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Note which files no row of the result can be in, and return all conditions: Spark evaluates them as well."""
        for one in filters:
            self._spared = _narrowed(self._spared, one, _INSTANTS.get(self._table))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        with _plainly(self._place):
            lake = Lake(self._place)
            return [LakePartition(tuple(part)) for part in _together(list(self._parts(lake)))] or [LakePartition(())]

    def _parts(self, lake: Lake) -> Iterator[tuple[FilePart, int]]:
        """Yield the files to read, with their bytes."""
        without: dict[str, set[str]] = {}
        if self._table == LETTERS:
            drained, looked = letter_files(lake)
            without = looked_again(lake, drained, looked)
            listed = [*drained, *looked]
        else:
            listed = files_of(lake, self._table)
        known = self._table in ("events", HEALTHY, LETTERS)  # the instants of its files
        for file in listed:
            if not known or (_touches(self._wanted, file) and _touches(self._spared, file)):
                complete = self._wanted == TimeRange() or (known and self._wanted.holds(file.min_us, file.max_us))
                yield FilePart(file.path, complete, frozenset(without.get(file.path, ()))), file.bytes

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LakePartition)
        with _plainly(self._place):
            files = files_at(self._place)
            for part in partition.files:
                with files.open(part.path) as source, pq.ParquetFile(source) as found:
                    yield from self._batches(found, part)

    def _batches(self, found: pq.ParquetFile, part: FilePart) -> Iterator[pa.RecordBatch]:
        there = set(found.schema_arrow.names)
        needed = {name for name in self._columns.names if name in there}
        if part.without:
            needed.add("dl_id")
        by = self._by()
        if not part.all_rows and by in there:
            needed.add(by)
        for batch in found.iter_batches(batch_size=_ROWS, columns=sorted(needed)):
            rows = self._selected(batch, part, by)
            yield pa.RecordBatch.from_arrays(
                [_column(rows, one, part.path) for one in self._columns], schema=self._columns
            )

    def _by(self) -> str:
        return _INSTANTS.get(self._table, _DAY)

    def _selected(self, rows: pa.RecordBatch, part: FilePart, by: str) -> pa.RecordBatch:
        """Return the rows in the range of time, and not those of other files."""
        since, until = self._wanted
        if not part.all_rows:
            if since is not None:
                rows = rows.filter(pc.greater_equal(rows.column(by), _bound(by, since)))
            if until is not None:
                rows = rows.filter(pc.less(rows.column(by), _bound(by, until)))
        if part.without:
            again = pa.array(sorted(part.without), pa.string())
            rows = rows.filter(pc.invert(pc.is_in(rows.column("dl_id"), value_set=again)))
        return rows


def _range(table: str, since: str | None, until: str | None) -> TimeRange:
    """Return the range of the options. Raises ConfigError for an invalid one, and for a table without a time."""
    if since is None and until is None:
        return TimeRange()
    if table in _INSTANTS:
        return span(since, until)
    if TABLES[table].startswith(f"{_DAY} DATE"):
        return whole_days(since, until)
    raise ConfigError(
        f"the rows of {table} have no single time",
        where="since" if since is not None else "until",
        cure="Leave since and until out, and select rows by where()",
        code="option-value",
    )


def _columns_of(schema: StructType, table: str) -> pa.Schema:
    """Return the columns of a schema. Raises ConfigError for other columns, or other types, than the table has."""
    from pyspark.sql.pandas.types import to_arrow_type

    known = arrow_schema(TABLES[table])
    found = []
    for column in schema.fields:
        kind = to_arrow_type(column.dataType)
        if column.name not in known.names or not known.field(column.name).type.equals(kind):
            raise ConfigError(
                f"there is no column {column.name} {column.dataType.simpleString().upper()} in {table}",
                where=_WHERE,
                cure=f"There are {TABLES[table]}",
                code="option-value",
            )
        found.append(pa.field(column.name, kind))
    return pa.schema(found)


def _touches(wanted: TimeRange, file: DataFile) -> bool:
    return wanted.touches(file.min_us, file.max_us)


def _together(parts: Sequence[tuple[FilePart, int]]) -> Iterator[list[FilePart]]:
    """Yield the files of each task: a large one by itself, small ones together."""
    found: list[FilePart] = []
    size = 0
    for part, count in parts:
        if found and size + count > _TOGETHER:
            yield found
            found, size = [], 0
        found.append(part)
        size += count
    if found:
        yield found


def _column(rows: pa.RecordBatch, column: pa.Field, path: str) -> pa.Array:
    """Return a column with exactly the type that Spark was told; a column that an earlier release lacked is null."""
    if column.name in rows.schema.names:
        return rows.column(column.name).cast(column.type)
    if column.name == "dt":
        day = next(part.removeprefix("dt=") for part in path.split("/") if part.startswith("dt="))
        return pa.repeat(pa.scalar(date.fromisoformat(day), column.type), len(rows))
    return pa.nulls(len(rows), column.type)


def _bound(by: str, us: int) -> pa.Scalar:
    return pa.scalar(day_of(us)) if by == _DAY else pa.scalar(us, pa.int64())


def _narrowed(spared: TimeRange, given: Filter, by: str | None) -> TimeRange:
    """Return the range of time that the rows of a condition on the time, or on the day, can be in."""
    if not isinstance(given, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return spared
    values = list(given.value) if isinstance(given, In) else [given.value]
    if given.attribute == (by,) and values and all(type(value) is int for value in values):
        first, end = min(values), max(values) + 1
    elif given.attribute == ("dt",) and values and all(type(value) is date for value in values):
        first, end = micros(min(values)), micros(max(values)) + DAY_US
    else:
        return spared
    since: int | None = end if isinstance(given, GreaterThan) else first
    until: int | None = first if isinstance(given, LessThan) else end
    if isinstance(given, LessThan | LessThanOrEqual):
        since = None
    elif isinstance(given, GreaterThan | GreaterThanOrEqual):
        until = None
    return TimeRange(_most(spared.since_us, since, max), _most(spared.until_us, until, min))


def _most(one: int | None, other: int | None, choose: Callable[[int, int], int]) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


@contextmanager
def _plainly(place: str) -> Iterator[None]:
    """Turn errors of Arrow and the disk into ours, and hide causes: Spark would show all of their texts."""
    try:
        with readable_errors(place):
            yield
    except RedeliverError as error:
        raise type(error)(error.what, where=error.where, cure=error.cure, code=error.code) from None
