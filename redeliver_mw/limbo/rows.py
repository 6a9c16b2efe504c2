# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts a message to the table rows that store it, and back. Pure.

Each part of a message is read back from one place only, so that a repair by SQL has the expected effect:

- the target from `port_name`, the body from `dms_limbo_body`, type, correlation id, reply-to and expiration from their
  documented columns;
- a header that is a str, number, bool or None of Python's own from `dms_limbo_props`, its type beside it in
  `dms_limbo_ptypes` (`TYPES`);
- our own headers, `redeliver_…`, from `redeliver_limbo_msg.marks`;
- values with a type of a driver's, bytes, tables, and texts that a database cannot hold, from
  `redeliver_limbo_msg.exact`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Table

from ..errors import ConfigError, NotCopyable
from ..message import Destination, Outgoing
from ..redelivery.copies import UNCOPYABLE
from ..redelivery.headers import PREFIX
from ..redelivery.order_places import OrderPlace
from ..storage import schema
from ..storage.header_values import is_plain, to_json
from .places import line_of

TYPES = {"null": 0, "boolean": 1, "long": 5, "double": 7, "string": 8}
"""`dms_limbo_ptypes.prop_type`: what the text in `prop_value` stands for."""
NULL, BOOLEAN, LONG, DOUBLE, STRING = TYPES.values()
_PROPERTIES = (
    "message_id",
    "timestamp_us",
    "content_type",
    "content_encoding",
    "priority",
    "group_id",
    "app_id",
    "user_id",
    "ttl_us",
    "persistent",
)  # headers that have no documented column to be read back from
_CLASS, _CLASS_TYPE = "javax.jms.BytesMessage", 1
_LAST_MS = 2**63 - 1
_OURS, _THEIRS = 1, 2
MOST_COUNTED = 99  # the largest count that the documented column can hold
FAILURES = "redeliver_failures"  # a message that is only scheduled for later has no such header
LONGEST_NAME = 255  # characters of a property's name in a documented table, because PostgreSQL's indexes have a limit


@dataclass(frozen=True, slots=True)
class Parking:
    """Holds a message to be parked: published not before `due`, in seconds since 1970.

    `wire`: an adapter's own image of the original, returned unchanged with the row, for what `Outgoing` alone does not
    contain. `delay` (seconds), `max_attempts` (0: no limit) and `failure_port` inform people who read the tables.
    `places` are stored with the message; they belong to `source`.
    """

    out: Outgoing
    due: float
    wire: bytes | None = None
    delay: float = 0.0
    max_attempts: int = 0
    failure_port: str = ""
    places: tuple[OrderPlace, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Parked:
    """Holds a parked message.

    `token` is the fencing token under which it was handed out; 0 if it was only looked at.
    """

    id: int
    limbo_id: int
    token: int
    out: Outgoing
    due: float  # seconds since 1970, to the millisecond
    count: int  # `delivery_count`: 1 at first
    wire: bytes | None = None
    publishes: int = 0  # failed publishes in total
    parked_us: int = 0
    last_error: str = ""
    source: str = ""  # as `str(Destination)`; empty: not known
    lineage: str = ""
    failures: int = 0
    generation: int = 0
    hop: int = 0
    reason: str = ""  # the reason of a dead letter
    problem: str = ""  # why `out` differs from the parked message, if somebody changed the row by hand


@dataclass(slots=True)
class ParkedRow:
    """Holds the rows of one message, without `msg_id` and the columns that depend on the program that parks it."""

    message: dict[str, Any]
    parked: dict[str, Any]
    body: bytes
    reply_to: bytes | None
    delay: dict[str, Any] | None
    props: list[tuple[str, str | None, int]] = field(default_factory=list)  # name, value, type
    places: Sequence[dict[str, Any]] = ()


def lines_of(parking: Parking, now_us: int) -> ParkedRow:
    """Return the rows for one message. Raises NotCopyable if the message would not come back unchanged."""
    out = parking.out
    marks, props, exact = _headers(out.headers)
    p, expires = out.properties, out.properties.expires_at_us
    expires_ms = None if expires is None or expires % 1000 else _fitting(expires // 1000)
    correlation, reply_to, type_ = _plain(p.correlation_id), _plain(p.reply_to), _plain(p.type)
    columns = {"correlation_id": correlation, "reply_to": reply_to, "type": type_, "expires_at_us": expires_ms}
    uncovered = [name for name in (*_PROPERTIES, *columns) if columns.get(name) is None]
    kept = {name: to_json(value) for name in uncovered if (value := getattr(p, name)) is not None}
    letter = marks.get(UNCOPYABLE)  # a dead letter stays until somebody releases it
    return ParkedRow(
        message={
            "delivery_date": milliseconds(parking.due if letter is None else now_us / 1e6),
            "delivery_count": 1 if letter is None else MOST_COUNTED,
            "port_name": _port(out.target),
            "msg_class": _CLASS,
            "msg_class_type": _CLASS_TYPE,
            "jms_type": type_,
            "jms_expiration": expires_ms,
            "jms_correlationid": correlation,
        },
        parked=_about(out, marks)
        | {
            "parked_us": now_us,
            "body_bytes": len(out.body),
            "publishes": 0,
            "last_error": letter,
            "wire": parking.wire,
            "marks": orjson.dumps(marks),
            "exact": orjson.dumps({"headers": exact, "properties": kept}),
        },
        body=bytes(out.body),
        reply_to=None if reply_to is None else reply_to.encode(),
        delay=_delay(parking) if "redeliver_not_before" in marks and _number(marks.get(FAILURES, "")) else None,
        props=props,
        places=[line_of(place, parking.source) for place in parking.places],
    )


def _headers(headers: Mapping[str, Any]) -> tuple[dict[str, str], list[tuple[str, str | None, int]], list[Any]]:
    """Return our own headers, the plain headers, and the others."""
    marks: dict[str, str] = {}
    props: list[tuple[str, str | None, int]] = []
    exact: list[Any] = []
    for name, value in headers.items():
        place, kind = _place(name), type(value)
        if kind is str:
            if place and is_plain(value):
                if place == _OURS:
                    marks[name] = value
                else:
                    props.append((name, value, STRING))
                continue
        elif place and (typed := _typed(value, kind)) is not None:
            props.append((name, *typed))
            continue
        exact.append([to_json(name), to_json(value)])
    return marks, props, exact


@lru_cache(maxsize=1024, typed=True)  # typed: a driver's own kind of text is equal to a text
def _place(name: str) -> int:
    """Return whether a header of this name is one of our marks or a property; 0 if it may only be an exact one."""
    if type(name) is not str or len(name) > LONGEST_NAME or not is_plain(name):
        return 0
    return _OURS if name.startswith(PREFIX) else _THEIRS


def _typed(value: Any, kind: type) -> tuple[str | None, int] | None:
    """Return a value of one of Python's own types as text and type; None for any other value."""
    if kind is int:
        return (str(value), LONG) if -(2**63) <= value < 2**63 else None
    if kind is bool:
        return "true" if value else "false", BOOLEAN
    if kind is float:
        return (repr(value), DOUBLE) if math.isfinite(value) else None
    return (None, NULL) if value is None else None


def _about(out: Outgoing, marks: Mapping[str, str]) -> dict[str, Any]:
    """Return the columns that show the contents of the copy's own headers to SQL."""
    name, kind = marks.get("redeliver_original_destination", ""), marks.get("redeliver_original_kind", "queue")
    counted = marks.get("redeliver_failures_for", "")
    return {
        "copy_id": out.copy_id or None,
        "lineage": marks.get("redeliver_lineage", ""),
        "generation": _number(marks.get("redeliver_generation", "")),
        "hop": _number(marks.get("redeliver_hop", "")),
        "failures": _number(marks.get(FAILURES, "")),
        "source": f"{kind}:{counted or name}" if counted or name else "",
        "reason": marks.get("redeliver_reason", ""),
    }


def _delay(parking: Parking) -> dict[str, Any]:
    properties = parking.out.properties
    stamp, priority = properties.timestamp_us, properties.priority
    return {
        "delay": max(0, math.ceil(parking.delay * 1000)),
        "max_attempts": min(parking.max_attempts, 32767),
        "failure_port": parking.failure_port,
        "jms_timestamp": None if stamp is None else _fitting(stamp // 1000),
        "jms_deliverymode": 2,  # persistent, as every copy
        "jms_priority": priority if priority is None else min(max(int(priority), 0), 32767),
        "jms_messageid": _plain(properties.message_id),
        "jms_redelivered": 1,
        "jms_destination": _port(parking.out.target),
    }


@lru_cache(maxsize=1024)
def _port(target: Destination) -> str:
    """Return the target as text. Raises NotCopyable if the text would be read back as another target."""
    text = str(target)
    try:
        if is_plain(text) and Destination.parse(text) == target:
            return text
    except ConfigError:
        pass
    raise NotCopyable(f"its target's name cannot be kept: {text!r}")


def _fitting(number: int) -> int | None:
    """Return the number if it fits into 64 bits, else None: a producer may write any number as its timestamp."""
    return number if -(2**63) <= number < 2**63 else None


def _plain(value: object) -> str | None:
    return value if type(value) is str and is_plain(value) else None


def _number(text: str) -> int:
    return min(int(text), 2**31 - 1) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def milliseconds(due: float) -> int:
    """Return milliseconds since 1970, rounded up so as never to be before `due`.

    Raises ConfigError for an invalid time.
    """
    if not math.isfinite(due):
        raise ConfigError(f"{due!r} is no time to publish at", code="option-value")
    return min(max(math.ceil(round(due * 1e6) / 1000), -_LAST_MS), _LAST_MS)


def insertions(
    lines: Iterable[tuple[int, ParkedRow]], common: Mapping[str, Any]
) -> list[tuple[Table, list[dict[str, Any]]]]:
    """Return the rows to insert into each table for messages with these ids.

    `common` is added to each row of `dms_limbo_msg`.
    """
    into: dict[Table, list[dict[str, Any]]] = {table: [] for table in schema.OF_A_MESSAGE}
    for id_, line in lines:
        key = {"msg_id": id_}
        into[schema.messages].append(key | dict(common) | line.message)
        into[schema.parked].append(key | line.parked)
        into[schema.bodies].append({"msg_id": id_, "msg_body": line.body})
        if line.reply_to is not None:
            into[schema.reply_tos].append({"msg_id": id_, "jms_replyto": line.reply_to})
        if line.delay is not None:
            into[schema.delays].append(key | line.delay)
        for name, value, kind in line.props:
            into[schema.props].append({"msg_id": id_, "prop_name": name, "prop_value": value})
            into[schema.ptypes].append({"msg_id": id_, "prop_name": name, "prop_type": kind})
    return [(table, found) for table, found in into.items() if found]
