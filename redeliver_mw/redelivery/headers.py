# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the `redeliver_*` headers of our copies. Pure.

Copies carry the count F as `redeliver_failures`. It is valid only together with `redeliver_failures_for` = this source
and without `redeliver_reason`. A message with a reason is a dead letter that another tool sent back: it starts again at
F = 0, one generation later. A broker's own counter is never used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ..message import Delivery, Past
from . import history

PREFIX = "redeliver_"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# the largest count that is believed: counting continues from there, in the journal's 32 bits
MOST_COUNTED = 2**31 - 2**20
_TRACE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def read_history_headers(delivery: Delivery) -> Past:
    """Return what a delivery's own headers record of earlier attempts here. Headers of another source are ignored."""
    headers = delivery.headers
    if not any(name.startswith(PREFIX) for name in headers):
        return Past()
    source = delivery.destination
    counted_for = _text(headers, "failures_for").removeprefix("queue:")
    reason = _text(headers, "reason")
    counted = counted_for == source.full_name
    replayed = not counted_for and _text(headers, "original_destination") == source.name
    if not (counted or replayed or reason):
        return Past()  # a handler forwarded the headers of another source's message
    past = Past(
        lineage=_text(headers, "lineage")[:64],
        generation=_int(headers, "generation"),
        hop=_int(headers, "hop"),
        first_attempt_us=_time(headers, "first_attempt_at"),
        replay_id=_text(headers, "replay_id") or None,
        original=_originals(headers) if counted or replayed else {},
        trace=trace_of(headers),
    )
    if reason:
        past.generation += 1
        past.first_attempt_us = None
    elif counted:
        past.failures = _int(headers, "failures")
        past.not_before_us = _time(headers, "not_before")
        past.expires_at_us = _time(headers, "expires_at")
        past.first_failed_us = _time(headers, "first_failed_at")
        past.last_failed_us = _time(headers, "last_failed_at")
        past.last_error = _last_error(headers)
        past.state = _state(headers)
        past.history = history.read(_text(headers, "history"))
    return past


def trace_of(headers: Mapping[str, Any]) -> str:
    """Return the span of the last attempt, as our copies carry it; empty if the header is not of that form."""
    text = _text(headers, "trace")
    return text if _TRACE.fullmatch(text) else ""


def iso(us: int) -> str:
    """Return microseconds since 1970 as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(headers: Mapping[str, Any], name: str) -> str:
    value = headers.get(PREFIX + name, "")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _int(headers: dict[str, Any], name: str) -> int:
    """Return a decimal from 0 to MOST_COUNTED; any other text is 0."""
    text = _text(headers, name)
    return min(int(text), MOST_COUNTED) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _time(headers: dict[str, Any], name: str) -> int | None:
    try:
        when = datetime.fromisoformat(_text(headers, name))
        when = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (when - _EPOCH) // timedelta(microseconds=1)


def due_now(headers: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    """Return the headers of a copy that is sent now, before its date, because somebody made it due by hand."""
    due_us = _time(dict(headers), "not_before")
    return dict(headers) if due_us is None or due_us <= now_us else {**headers, "redeliver_not_before": iso(now_us)}


def _state(headers: dict[str, Any]) -> dict[str, str]:
    try:
        state = json.loads(_text(headers, "state") or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(k): str(v) for k, v in state.items()} if isinstance(state, dict) else {}


def _last_error(headers: dict[str, Any]) -> str | None:
    kind, text = _text(headers, "error_type"), _text(headers, "error_message")
    return f"{kind}: {text}" if kind else None


def _originals(headers: dict[str, Any]) -> dict[str, str]:
    start = PREFIX + "original_"
    return {name: _text(headers, name.removeprefix(PREFIX)) for name in headers if name.startswith(start)}
