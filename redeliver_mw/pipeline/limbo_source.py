# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads parked messages as a table, `spark.read.format("redeliver_limbo")`, from SQLite or PostgreSQL in Spark's tasks.

Options:

=============  ==========================================================================================
`url`          the limbo's, as for an app; or `env:NAME`, for a variable of the driver and the executors
`body`         `true`: also the column `body`
`partitions`   maximum number of tasks that read at the same time; by default as many as are worth it, up to 16
=============  ==========================================================================================

Spark passes conditions on if `spark.sql.python.filterPushdown.enabled` is set, and reads all columns in any case. To
read fewer columns, give a schema with fewer of them, `spark.read.schema("id BIGINT, reason STRING")`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import StructType

from ..errors import ConfigError, LimboError, RedeliverError
from ..limbo.scan import Scan, ScanCondition
from ..redaction import redact
from .pushed_filters import PushedFilters

COLUMNS: Final = {
    "id": "BIGINT",
    "target": "STRING",
    "source": "STRING",
    "given_up": "BOOLEAN",
    "due_us": "BIGINT",
    "parked_us": "BIGINT",
    "delivery_count": "INT",
    "publishes": "INT",
    "failures": "INT",
    "generation": "INT",
    "reason": "STRING",
    "message_key": "STRING",
    "copy_id": "STRING",
    "last_error": "STRING",
    "body_bytes": "BIGINT",
    "app": "STRING",
    "broker": "STRING",
}
BODY: Final = {"body": "BINARY"}
_ARROW: Final = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
}
_OPERATORS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_Comparison = GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
_MOST_PIECES: Final = 16
_PIECE: Final = 100_000  # messages that are worth a task of their own
_PATIENCE: Final = 30.0  # seconds for another program's lock: no message waits for this reader
_CURE: Final = 'Write .option("url", "sqlite:////folder/limbo.db") or "postgresql://user@host/database"'
_OPTIONS: Final = ("url", "body", "partitions")


@dataclass(frozen=True)
class LimboPartition(InputPartition):
    """Selects the messages from the id `first` on and before `last`; None: without a limit."""

    first: int | None
    last: int | None


class LimboSource(DataSource):
    """Implements the data source `redeliver_limbo`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        if others := sorted(set(map(str.lower, options)) - set(_OPTIONS)):
            cure = f"Options are {', '.join(_OPTIONS)}"
            raise ConfigError(
                f"there is no option {others[0]!r}", where="redeliver_limbo", cure=cure, code="option-value"
            )

    @classmethod
    def name(cls) -> str:
        return "redeliver_limbo"

    def schema(self) -> str:
        columns = COLUMNS | BODY if self._flag("body") else COLUMNS
        return ", ".join(f"{name} {kind}" for name, kind in columns.items())

    def reader(self, schema: StructType) -> LimboReader:
        return LimboReader(self._url(), _columns_of(schema), self._pieces())

    def _url(self) -> str:
        if not (url := self.options.get("url", "").strip()):
            raise ConfigError("no url", where="redeliver_limbo", cure=_CURE, code="option-value")
        return url

    def _flag(self, name: str) -> bool:
        given = str(self.options.get(name, "false")).strip().lower()
        if given not in ("true", "false", "1", "0"):
            raise ConfigError(
                f"{given!r} is not true or false",
                where=f"option {name}",
                cure="Write true or false",
                code="option-value",
            )
        return given in ("true", "1")

    def _pieces(self) -> int | None:
        if (given := self.options.get("partitions")) is None:
            return None
        if not given.strip().isdigit() or not 1 <= int(given) <= 10_000:
            raise ConfigError(
                f"{given!r} is no number of tasks",
                where="option partitions",
                cure="Give 1 to 10000",
                code="option-value",
            )
        return int(given)


class LimboReader(DataSourceReader):
    """Reads columns by name with their types, under the conditions that Spark has passed on."""

    def __init__(self, url: str, columns: Mapping[str, str], pieces: int | None) -> None:
        self._url, self._columns, self._pieces = url, dict(columns), pieces
        self._tests: list[ScanCondition] = []
        vars(self)["pushFilters"] = PushedFilters(self._push)

    def _push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Keep the conditions that the database evaluates exactly as Spark does, and return the others."""
        for one in filters:
            test = _test(one, self._columns)
            if test is None:
                yield one
            else:
                self._tests.append(test)

    def partitions(self) -> Sequence[InputPartition]:
        with _plainly(), Scan(_told_url(self._url), busy_timeout=_PATIENCE) as scan:
            starts = scan.bounds(self._pieces or _MOST_PIECES, 1 if self._pieces else _PIECE)
        ends = [*starts[1:], None]
        # Messages before the first id and after the last one may be added before the tasks read.
        firsts = [None, *starts[1:]] if starts else [None]
        return [LimboPartition(first, last) for first, last in zip(firsts, ends, strict=False)] or [
            LimboPartition(None, None)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LimboPartition)
        names = list(self._columns)
        with _plainly(), Scan(_told_url(self._url), busy_timeout=_PATIENCE) as scan:
            for columns in self._found(scan, names, partition):
                arrays = [
                    _array(name, self._columns[name], values) for name, values in zip(names, columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    def _found(self, scan: Scan, names: Sequence[str], piece: LimboPartition) -> Iterator[Iterable[Sequence[Any]]]:
        if "body" not in names:
            return scan.columns(names, piece.first, piece.last, self._tests)
        rows = scan.rows(names, piece.first, piece.last, self._tests)
        return (zip(*some, strict=True) for some in rows)


def _columns_of(schema: StructType) -> dict[str, str]:
    """Return the columns of a schema. Raises ConfigError for other columns, or other types, than the source has."""
    known, found = COLUMNS | BODY, {}
    for field in schema.fields:
        kind = field.dataType.simpleString().upper()
        if known.get(field.name) != kind:
            there = ", ".join(f"{name} {type_}" for name, type_ in known.items())
            raise ConfigError(
                f"there is no column {field.name} {kind}",
                where="redeliver_limbo",
                cure=f"There are {there}",
                code="option-value",
            )
        found[field.name] = kind
    return found


def _test(given: Filter, columns: Mapping[str, str]) -> ScanCondition | None:
    """Return a condition for the database; None if it might differ from Spark, as in order and case of texts."""
    if isinstance(given, Not):
        inner = _test(given.child, columns)
        return None if inner is None else inner._replace(negated=not inner.negated)
    if not isinstance(given, IsNull | IsNotNull | EqualTo | In | _Comparison) or len(given.attribute) != 1:
        return None
    name = given.attribute[0]
    if (kind := columns.get(name)) is None:
        return None
    if isinstance(given, IsNull | IsNotNull):
        return ScanCondition(name, "null", negated=isinstance(given, IsNotNull))
    operator = _OPERATORS[type(given)]
    values = given.value if isinstance(given, In) else (given.value,)
    if kind in ("BIGINT", "INT"):
        fits = all(type(value) is int for value in values)
    elif kind == "STRING":
        fits = operator in ("=", "in") and all(type(value) is str and "\0" not in value for value in values)
    else:
        fits = kind == "BOOLEAN" and operator in ("=", "in") and all(type(value) is bool for value in values)
        values = tuple(map(int, values))
    if not fits or not values:
        return None
    return ScanCondition(name, operator, tuple(values) if operator == "in" else values[0])


def _array(name: str, kind: str, values: Sequence[Any]) -> pa.Array:
    if name == "last_error":
        # Few values are different.
        shown = {value: None if value is None else redact(str(value)) for value in set(values)}
        values = [shown[value] for value in values]
    try:
        if kind == "BOOLEAN":
            return pa.array(values, pa.int8()).cast(pa.bool_())
        return pa.array(values, _ARROW[kind])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        what = f"a message has a value for {name} that is no {kind}"
        raise LimboError(
            what, cure="Look for it with SQL: somebody has changed it by hand", code="limbo-row-damaged"
        ) from None


def _told_url(url: str) -> str:
    if not url.startswith("env:"):
        return url
    name = url.removeprefix("env:")
    if not os.environ.get(name):
        cure = "Set it on the driver and on all executors, as with spark.executorEnv"
        raise ConfigError(f"the variable {name!r} is not set", where=url, cure=cure, code="url-missing")
    return os.environ[name]


@contextmanager
def _plainly() -> Iterator[None]:
    """Hide the causes of errors: Spark would show a driver's own text, which may contain a password."""
    try:
        yield
    except RedeliverError as error:
        raise type(error)(error.what, where=error.where, cure=error.cure, code=error.code) from None
