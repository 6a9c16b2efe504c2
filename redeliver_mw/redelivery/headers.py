# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the `redeliver_*` headers of our copies, and makes the texts of those that have a form of their own. Pure.

Copies carry the count F as `redeliver_failures`. It is valid only together with `redeliver_failures_for` = this source
and without `redeliver_reason`. A message with a reason is a dead letter that another tool sent back: it starts again at
F = 0, one generation later. A broker's own counter is never used.

`redeliver_history` holds the last attempts as JSON within a budget, oldest first:
`[{"t":"2026-01-02T03:04:05.000Z","f":"0123456789abcdef","h":"host1","d":1.5}, …]`, which is when the attempt failed,
the failure's fingerprint, on which host, and the delay in seconds that followed; no delay follows the last attempt of a
dead letter. The header is written anew on each copy, never appended to.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ..adapter.capabilities import Capabilities
from ..message import KEPT_ATTEMPTS, Attempt, Delivery, Past

PREFIX = "redeliver_"
HISTORY_BYTES = 2048
HOST_BYTES = 64  # of a name, in ASCII
MAX_DELAY = 1e9  # seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# the largest count that is believed: counting continues from there, in the journal's 32 bits
MOST_COUNTED = 2**31 - 2**20
AttemptHistory = tuple[Attempt, ...]
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
        past.history = read_history(_text(headers, "history"))
    return past


def avoiding_broker_effects(headers: Mapping[str, Any], capabilities: Capabilities) -> dict[str, Any]:
    """Return headers without ours and without those that the broker would act on when they are sent again."""
    biting = (PREFIX, *capabilities.strip_prefixes)
    marks = capabilities.death_marks
    return {
        name: value
        for name, value in headers.items()
        if name not in capabilities.strip
        and name not in marks
        and not name.startswith(biting)
        and name != "original-destination"
    }


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


def written_history(history: AttemptHistory, room: int = HISTORY_BYTES) -> str:
    """Return the history as ASCII of at most `room` bytes and 2 KiB, without the oldest attempts.

    The text is empty if not even the last attempt fits.
    """
    items = [json.dumps(_history_item(attempt), separators=(",", ":")) for attempt in history[-KEPT_ATTEMPTS:]]
    while items and len(",".join(items)) + 2 > min(room, HISTORY_BYTES):
        del items[0]
    return f"[{','.join(items)}]" if items else ""


def read_history(text: str) -> AttemptHistory:
    """Return the history in a text.

    The history is empty if the text is not of this form, or is longer than ours, and so is not ours.
    """
    if not 0 < len(text) <= HISTORY_BYTES:
        return ()
    try:
        return tuple(_attempt_of(item) for item in json.loads(text))[-KEPT_ATTEMPTS:]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


def _history_item(attempt: Attempt) -> dict[str, Any]:
    item = {"t": _iso_ms(attempt.at_us), "f": attempt.fingerprint, "h": _short(attempt.host)}
    return item if attempt.delay is None else item | {"d": round(min(attempt.delay, MAX_DELAY), 3)}


def _attempt_of(item: dict[str, Any]) -> Attempt:
    when, fingerprint, host, delay = item["t"], item["f"], item["h"], item.get("d")
    if not all(isinstance(text, str) for text in (when, fingerprint, host)):
        raise TypeError
    if delay is not None and (type(delay) not in (int, float) or not (math.isfinite(delay) and delay >= 0)):
        raise ValueError
    at = datetime.fromisoformat(when)
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    return Attempt((at - _EPOCH) // timedelta(microseconds=1), fingerprint, host, delay)


def _iso_ms(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(host: str) -> str:
    return host.encode("ascii", "replace")[:HOST_BYTES].decode("ascii")
