# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks lines of a journal: records go into an Arrow table, all other lines are reported with their place.

The rules apply line by line: `record.from_line`, with a few more checks. Arrow's reader of JSON does the same for a
whole block, ten times as fast, wherever it is at least as strict. A block that Arrow does not accept is divided into
halves, and the few lines that remain are checked one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ...journal.records import (
    COUNT_SCHEMA,
    FIELDS,
    POLICY_SCHEMA,
    SCHEMA,
    VERSION,
    AttemptRecord,
    Bounds,
    FieldTypes,
    HealthyCount,
    OtherKind,
    count_from_line,
    from_line,
)
from ..time_range import micros
from .line_reader import HEAD, LONGEST, has_overlong

_TYPES: Final = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "list<string>": pa.list_(pa.string()),
}
ARROW: Final = pa.schema([(name, _TYPES[kind.type]) for name, kind in SCHEMA.items()])
COUNTS_ARROW: Final = pa.schema([(name, _TYPES[kind.type]) for name, kind in COUNT_SCHEMA.items() if name != "kind"])
# `kind` is that of a policy or a count, whose sums need more bits than the numbers of an attempt.
_SEEN: Final = pa.schema(
    [(name, _TYPES[kind.type]) for name, kind in {**POLICY_SCHEMA, **SCHEMA, **COUNT_SCHEMA}.items()]
)

# Converts a record of another version to VERSION: from its JSON object to the new one's, or ValueError. Lines of the
# current version are not listed here; this release does not know any version that is in no list.
OTHER_VERSIONS: Final[dict[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {}

# Outside of these bounds a clock was never set, or counts in another unit.
_FIRST_US: Final = micros("2000-01-01")
_BEYOND_US: Final = micros("2200-01-01")
_TIMES: Final = ("ts_us", "since_us", "first_attempt_us", "last_failure_us")
_COUNT_FIELDS: Final = {name: kind for name, kind in COUNT_SCHEMA.items() if name != "kind"}
_KEYS: Final = ("record_id", "message_key")  # empty values would make one record of many
_ONE_BY_ONE: Final = 32  # number of lines for which another try as a block is not worthwhile

_values = attrgetter(*FIELDS)
_count_values = attrgetter(*COUNTS_ARROW.names)


@dataclass(frozen=True, slots=True)
class BadLine:
    """Describes a line that is no record: start, length without the newline, reason, and first bytes as text."""

    offset: int
    length: int
    reason: str
    head: str


class Checked(NamedTuple):
    """Holds the results for some lines: attempts, bad lines, the number of lines about other things, and counts."""

    attempts: pa.Table | None = None
    bad: Sequence[BadLine] = ()
    others: int = 0
    counts: pa.Table | None = None


def check(data: bytes, offset: int) -> Iterator[Checked]:
    """Yield the results for a block that begins at byte `offset`, in order; the last line may lack its newline."""
    if (taken := as_table(data)) is not None:
        yield taken
        return
    middle = data.find(b"\n", len(data) // 2) + 1
    if data.count(b"\n") <= _ONE_BY_ONE or middle in (0, len(data)):
        yield one_by_one(data, offset)
        return
    yield from check(data[:middle], offset)
    yield from check(data[middle:], offset + middle)


def as_table(data: bytes) -> Checked | None:
    """Return the results for all lines at once; None if a line might not pass one by one.

    No line may pass here that orjson or `from_line` reject, or read differently. So: exactly one object in each line,
    no NUL (which ends Arrow's text), UTF-8 everywhere, no NaN, and no field that Arrow skips unless orjson has read the
    line as well.
    """
    lines = data.count(b"\n")
    if not data.startswith(b"{") or not data.endswith(b"}\n") or data.count(b"}\n{") != lines - 1:
        return None
    if b"\0" in data or has_overlong(data) or not _is_utf8(data):
        return None
    table = _read(data, "error")
    if table is None and (table := _read(data, "ignore")) is not None and not _all_json(data):
        return None
    if table is None or len(table) != lines or pc.any(pc.invert(pc.is_finite(table["propensity"]))).as_py():
        return None
    if table["kind"].null_count == lines:
        attempts, counts = table, None
    else:
        attempts = table.filter(pc.is_null(table["kind"]))
        counts = table.filter(pc.equal(table["kind"], "healthy")).select(COUNTS_ARROW.names)
        counts = counts if len(counts) else None
    try:
        attempts = attempts.select(FIELDS).cast(ARROW)
    except pa.ArrowInvalid:  # a number with more bits than the field of an attempt has
        return None
    if not _all_hold(attempts, SCHEMA) or (counts is not None and not _all_hold(counts, _COUNT_FIELDS)):
        return None
    return Checked(attempts, others=lines - len(attempts) - (len(counts) if counts is not None else 0), counts=counts)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _read(data: bytes, unknown: str) -> pa.Table | None:
    """Return the lines as Arrow reads them; `unknown` says what happens to fields that are not in `_SEEN`."""
    options = pj.ParseOptions(explicit_schema=_SEEN, unexpected_field_behavior=unknown)
    reading = pj.ReadOptions(use_threads=False, block_size=len(data))
    try:
        return pj.read_json(pa.BufferReader(data), read_options=reading, parse_options=options)
    except (pa.ArrowException, ValueError):
        return None


def _all_json(data: bytes) -> bool:
    try:
        for line in data[:-1].split(b"\n"):
            orjson.loads(line)
    except ValueError:
        return False
    return True


def _all_hold(rows: pa.Table, fields: FieldTypes) -> bool:
    """Return whether `_record`, or `_count`, would have accepted all rows."""
    if not all(_holds(name, rows[name], fields) for name in fields):
        return False
    return not pc.any(pc.not_equal(rows["v"], VERSION)).as_py()


def _holds(name: str, column: pa.ChunkedArray, fields: FieldTypes) -> bool:
    kind = fields[name]
    if column.null_count and not kind.nullable:
        return False
    if name in _TIMES:
        limits = pc.min_max(column).as_py()
        return limits["min"] is None or (limits["min"] >= _FIRST_US and limits["max"] < _BEYOND_US)
    if name in _KEYS:
        return not pc.any(pc.equal(column, "")).as_py()
    if kind.bounds is not None and not _within(column, kind.bounds):
        return False
    if kind.words:
        return not pc.any(pc.invert(pc.is_in(column.drop_null(), pa.array(kind.words)))).as_py()
    if kind.type == "list<string>":
        return bool(pc.list_flatten(column).null_count == 0)
    return True


def _within(column: pa.ChunkedArray, bounds: Bounds) -> bool:
    numbers = pc.utf8_length(column) if pa.types.is_string(column.type) else column
    limits = pc.min_max(numbers).as_py()
    if limits["min"] is None:
        return True
    return bool(limits["min"] >= bounds.least and (bounds.most is None or limits["max"] <= bounds.most))


def one_by_one(data: bytes, offset: int) -> Checked:
    """Return the results one line at a time. This function decides what is a record."""
    rows: list[tuple[Any, ...]] = []
    counts: list[tuple[Any, ...]] = []
    bad: list[BadLine] = []
    others = 0
    for line in data.removesuffix(b"\n").split(b"\n"):
        try:
            match _record(line):
                case HealthyCount() as count:
                    counts.append(_count_values(count))
                case record:
                    rows.append(_values(record))
        except OtherKind:
            others += 1
        except ValueError as error:
            bad.append(BadLine(offset, len(line), str(error), head_of(line)))
        offset += len(line) + 1
    return Checked(_table(rows, ARROW), bad, others, _table(counts, COUNTS_ARROW))


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table | None:
    if not rows:
        return None
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)], schema=schema)


def head_of(line: bytes) -> str:
    return line[:HEAD].decode(errors="replace")


def _record(line: bytes) -> AttemptRecord | HealthyCount:
    """Return the record of a line: of an attempt, or a count of healthy messages.

    Raises ValueError if it is no record of any version, OtherKind if it is of another kind.
    """
    if not line:
        raise ValueError("an empty line")
    if len(line) > LONGEST:
        raise ValueError(f"a line of more than {LONGEST} bytes")
    record: AttemptRecord | HealthyCount
    try:
        record = from_line(_of_this_version(line))
    except OtherKind:
        record = count_from_line(line)
    _refuse_doubles(line)
    for name in _TIMES:
        at = getattr(record, name, None)
        if at is not None and not _FIRST_US <= at < _BEYOND_US:
            raise ValueError(f"field {name!r} is {at}, which is no time in microseconds from 2000 to 2200")
    for name in _KEYS:
        if not getattr(record, name, name):
            raise ValueError(f"field {name!r} is empty")
    if record.propensity is not None:
        record.propensity = float(record.propensity)  # Arrow does not accept an integer as a double
    return record


def _of_this_version(line: bytes) -> bytes:
    """Return the line, or its conversion to VERSION."""
    if not OTHER_VERSIONS:
        return line
    row = orjson.loads(line)
    version = row.get("v") if isinstance(row, dict) else None
    if not isinstance(version, int) or version not in OTHER_VERSIONS:
        return line
    return orjson.dumps(OTHER_VERSIONS[version](row))


def _refuse_doubles(line: bytes) -> None:
    """Raise ValueError for a field that is in the line twice: the intended value is not known."""
    try:
        pairs: list[tuple[str, object]] = json.loads(line, object_pairs_hook=list)
    # An unknown field, nested too deeply for this reader; Arrow's reader rejects duplicate fields as well.
    except RecursionError:
        if _read(line + b"\n", "ignore") is None:
            raise ValueError("a field stands in it twice") from None
        return
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen and (name in SCHEMA or name in COUNT_SCHEMA):
            raise ValueError(f"field {name!r} stands in it twice")
        seen.add(name)
