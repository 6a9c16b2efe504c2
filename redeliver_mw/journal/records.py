# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines `AttemptRecord`: one attempt at one message. A line of the journal is a row in Spark.

The class body below is the only list of the fields; `FIELDS` and `SCHEMA` are read from it, and so are all checks made
when a line is read. A line is one JSON object and a newline. A field that is None is left out of the line: this saves a
third of the bytes, and a reader that declares its schema sees null.

A line that is not an attempt has a field `kind`, which no attempt has: `policy` for a `PolicyRecord`, `healthy` for a
`HealthyCount`. Readers of attempts skip every line with a `kind`, including kinds that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

from ..message import DestinationKind
from .encoding import line_of

VERSION: Final = 1

AttemptOutcome = Literal["accepted", "redelivered", "dead_lettered", "discarded", "kept", "released"]
AttemptReason = Literal[
    "exhausted",
    "rejected",
    "fatal",
    "expired",
    "undecodable",
    "crashed",
    "handler",
    "breaker",
    "stop",
]
DelayMechanism = Literal["hold", "nack", "schedule", "park"]
Healthy = Literal["all", "counts"]  # how messages that were handled at their first delivery are recorded

Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]


class Bounds(NamedTuple):
    """Holds the smallest and the largest value of a number field, both included; for a text, the largest length."""

    least: float
    most: float | None = None


Count32 = Annotated[int, "int32", Bounds(0)]
Span64 = Annotated[int, "int64", Bounds(0)]  # microseconds
Sum64 = Annotated[int, "int64", Bounds(0)]
NonEmptyText = Annotated[str, "string", Bounds(1)]
Share = Annotated[float, "double", Bounds(5e-324, 1.0)]  # of all messages: above 0


@dataclass(slots=True, kw_only=True)
class _Record:
    """Holds the first fields of every record: the line's version and id, when, by whom, and where."""

    v: Int16 = VERSION
    record_id: str = ""  # run id and counter
    ts_us: Int64
    app: str
    host: str
    broker: str
    broker_kind: str
    destination: NonEmptyText
    destination_kind: DestinationKind


@dataclass(slots=True, kw_only=True)
class AttemptRecord(_Record):
    """Holds one attempt. Names ending in `_us` are int64 microseconds (points in time: since 1970, UTC).

    Slotted and not frozen, because one is made on every failing path; treat it as read-only all the same. `record_id`
    may stay empty: the journal fills it in.
    """

    message_id: str | None = None
    message_key: str  # stable across copies
    group_id: str | None = None
    generation: Count32
    delivery_count: Annotated[int, "int32", Bounds(1)]  # 1 on the first delivery
    broker_redelivered: bool
    outcome: AttemptOutcome
    reason: AttemptReason | None = None
    error_type: str | None = None
    error_message: str | None = None  # redacted
    error_fingerprint: str | None = None  # 16 hex digits
    error_frames: Sequence[str] | None = None  # normalised; with the type they make the fingerprint
    error_text: str | None = None  # redacted, at most 64 KiB
    mechanism: DelayMechanism | None = None
    delay_us: Span64 | None = None
    delay_base_us: Span64 | None = None  # before jitter
    policy: str
    policy_version: str
    policy_arm: str | None = None
    propensity: Share | None = None
    handler_us: Span64
    queue_us: Span64
    settle_us: Span64 | None = None
    first_attempt_us: Int64
    last_failure_us: Int64 | None = None
    attempts_total: Count32
    payload_bytes: Count32
    targets: Sequence[str] | None = None
    replay_id: str | None = None


@dataclass(slots=True, kw_only=True)
class PolicyRecord:
    """Records a new version of a policy file, and its outcome.

    The lists are parallel, with one item for each source.
    """

    v: Int16 = VERSION
    kind: Literal["policy"] = "policy"
    record_id: str = ""  # as for an attempt
    ts_us: Int64
    app: str
    host: str
    broker: str
    broker_kind: str
    file: str
    content: str | None = None  # 12 hex digits of the file's bytes; None if it could not be read
    outcome: Literal["applied", "refused"]
    sources: Sequence[str]  # if applied: sources whose policy changed; if refused: sources that use the file
    old_versions: Sequence[str]  # `policy_version` of attempts until now; unchanged if the new version was refused
    new_versions: Sequence[str] | None = None
    error: str | None = None  # why the version was refused; redacted


@dataclass(slots=True, kw_only=True)
class HealthyCount(_Record):
    """Counts messages that were handled at their first delivery and have no line of their own.

    Written with `journal_healthy="counts"`.

    Covers the time from `since_us`, of the first message, to `ts_us`, of the last.
    """

    kind: Literal["healthy"] = "healthy"
    since_us: Int64
    policy: str
    policy_version: str
    policy_arm: str | None = None
    propensity: Share | None = None
    messages: Annotated[int, "int64", Bounds(1)]
    handler_us: Span64  # sum of all the messages
    payload_bytes: Sum64  # sum of all the messages


class OtherKind(ValueError):
    """Reports a line of another kind than the one asked for."""


class FieldType(NamedTuple):
    """Describes what one field may hold: `type` is `string bool int16 int32 int64 double list<string>`."""

    type: str
    nullable: bool
    words: tuple[str, ...] = ()  # the allowed strings, if only certain ones are allowed
    bounds: Bounds | None = None


def _field_type(hint: Any) -> FieldType:
    """Return the type of a field, read from its annotation."""
    if get_origin(hint) not in (Annotated, Literal, Sequence) and type(None) in get_args(hint):
        held = next(arm for arm in get_args(hint) if arm is not type(None))
        return _field_type(held)._replace(nullable=True)
    if get_origin(hint) is Annotated:
        _, name, *bounds = get_args(hint)
        return FieldType(name, False, bounds=bounds[0] if bounds else None)
    if get_origin(hint) is Literal:
        return FieldType("string", False, get_args(hint))
    return FieldType({str: "string", bool: "bool", float: "double"}.get(hint, "list<string>"), False)


FIELDS: Final[tuple[str, ...]] = tuple(field.name for field in fields(AttemptRecord))
FieldTypes = Mapping[str, FieldType]


def _schema(record: type) -> FieldTypes:
    return {name: _field_type(hint) for name, hint in get_type_hints(record, include_extras=True).items()}


SCHEMA: Final = _schema(AttemptRecord)
POLICY_SCHEMA: Final = _schema(PolicyRecord)
COUNT_SCHEMA: Final = _schema(HealthyCount)


def _filled(record: AnyRecord) -> dict[str, object]:
    """Return the fields of a record that are not None, in their order."""
    return {name: value for name in _NAMES[type(record)] if (value := getattr(record, name)) is not None}


AnyRecord = AttemptRecord | PolicyRecord | HealthyCount
_NAMES: Final[Mapping[type, tuple[str, ...]]] = {
    AttemptRecord: tuple(SCHEMA),
    PolicyRecord: tuple(POLICY_SCHEMA),
    HealthyCount: tuple(COUNT_SCHEMA),
}
_INT_LIMITS: Final = {"int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}


def to_line(record: AnyRecord) -> bytes:
    r"""Return the record as one line of JSON with a newline, without the fields that are None.

    Lone surrogates are written as `\udc80` in plain letters. Raises ValueError, whose text names the field, for a
    value that JSON cannot hold.
    """
    return line_of(_filled(record))


def row_to_line(values: Sequence[object], record_id: str | None = None) -> bytes:
    """Return the line of a plain row: all values in the order of `FIELDS`; `record_id` replaces the row's own."""
    row = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
    if record_id is not None:
        row["record_id"] = record_id
    return line_of(row)


def from_line(line: bytes) -> AttemptRecord:
    """Return the record of one line. Fields that v1 does not know are ignored, nullable ones may be missing.

    Raises ValueError, whose text names the field, if one is missing or does not hold what `SCHEMA` demands. Raises
    OtherKind for a line that is not an attempt.
    """
    return AttemptRecord(**_checked(line, SCHEMA, None))


def policy_from_line(line: bytes) -> PolicyRecord:
    """Return the record of a line about a policy file. Raises OtherKind for any other line."""
    return PolicyRecord(**_checked(line, POLICY_SCHEMA, "policy"))


def count_from_line(line: bytes) -> HealthyCount:
    """Return the record of a line about messages that were only counted. Raises OtherKind for any other line."""
    return HealthyCount(**_checked(line, COUNT_SCHEMA, "healthy"))


def _checked(line: bytes, schema: FieldTypes, kind: str | None) -> dict[str, Any]:
    """Return the fields of a line that `schema` knows, after checking their types."""
    import orjson

    try:
        row = orjson.loads(line)
    except ValueError as error:
        raise ValueError(f"not a line of JSON: {error}") from None
    match row:
        case dict():
            pass
        case _:
            raise ValueError(f"a record is a JSON object, not {type(row).__name__}")
    if row.get("kind") != kind:
        raise OtherKind(f"its kind is {row.get('kind')!r:.80}, not {kind!r}")
    for name, wanted in schema.items():
        if row.get(name) is None and not wanted.nullable:
            raise ValueError(f"field {name!r} is missing")
    if row["v"] != VERSION:
        raise ValueError(f"field 'v' is {row['v']!r}; this release reads version {VERSION}")
    known = {name: row[name] for name in schema if row.get(name) is not None}
    for name, value in known.items():
        if not _fits(value, schema[name]):
            raise ValueError(f"field {name!r} holds {str(value)[:80]!r}, which is no {_wanted(schema[name])}")
        bounds = schema[name].bounds
        if bounds is not None and not _is_within(value, bounds):
            problem = "which is empty" if value == "" else _outside(bounds)
            raise ValueError(f"field {name!r} is {value!r:.80}, {problem}")
    return known


def _is_within(value: Any, bounds: Bounds) -> bool:
    if isinstance(value, str):
        return len(value) >= bounds.least
    return bool(bounds.least <= value and (bounds.most is None or value <= bounds.most))


def _outside(bounds: Bounds) -> str:
    if bounds.most is not None:
        return f"and not above 0 and at most {bounds.most:g}"
    return f"which is less than {bounds.least:g}"


def _fits(value: object, wanted: FieldType) -> bool:
    match wanted.type:
        case "string":
            return isinstance(value, str) and (not wanted.words or value in wanted.words)
        case "bool":
            return isinstance(value, bool)
        case "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "list<string>":
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
    limit = _INT_LIMITS[wanted.type]
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def _wanted(kind: FieldType) -> str:
    return " | ".join(kind.words) if kind.words else kind.type
