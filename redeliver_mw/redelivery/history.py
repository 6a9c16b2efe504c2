# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the last attempts of a message, which its copies carry as one JSON property within a budget. Pure.

`[{"t":"2026-01-02T03:04:05.000Z","f":"0123456789abcdef","h":"host1","d":1.5}, …]`, oldest first: when the attempt
failed, the failure's fingerprint, on which host, and the delay in seconds that followed; no delay follows the last
attempt of a dead letter. The property is written anew on each copy, never appended to.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from ..message import KEPT_ATTEMPTS, Attempt

HISTORY_BYTES = 2048
HOST_BYTES = 64  # of a name, in ASCII
MAX_DELAY = 1e9  # seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

AttemptHistory = tuple[Attempt, ...]


def written(history: AttemptHistory, room: int = HISTORY_BYTES) -> str:
    """Return the history as ASCII of at most `room` bytes and 2 KiB, without the oldest attempts.

    The text is empty if not even the last attempt fits.
    """
    items = [json.dumps(_item(attempt), separators=(",", ":")) for attempt in history[-KEPT_ATTEMPTS:]]
    while items and len(",".join(items)) + 2 > min(room, HISTORY_BYTES):
        del items[0]
    return f"[{','.join(items)}]" if items else ""


def read(text: str) -> AttemptHistory:
    """Return the history in a text.

    The history is empty if the text is not of this form, or is longer than ours, and so is not ours.
    """
    if not 0 < len(text) <= HISTORY_BYTES:
        return ()
    try:
        return tuple(_attempt(item) for item in json.loads(text))[-KEPT_ATTEMPTS:]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()


def _item(attempt: Attempt) -> dict[str, Any]:
    item = {"t": _iso(attempt.at_us), "f": attempt.fingerprint, "h": _short(attempt.host)}
    return item if attempt.delay is None else item | {"d": round(min(attempt.delay, MAX_DELAY), 3)}


def _attempt(item: dict[str, Any]) -> Attempt:
    when, fingerprint, host, delay = item["t"], item["f"], item["h"], item.get("d")
    if not all(isinstance(text, str) for text in (when, fingerprint, host)):
        raise TypeError
    if delay is not None and (type(delay) not in (int, float) or not (math.isfinite(delay) and delay >= 0)):
        raise ValueError
    at = datetime.fromisoformat(when)
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    return Attempt((at - _EPOCH) // timedelta(microseconds=1), fingerprint, host, delay)


def _iso(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(host: str) -> str:
    return host.encode("ascii", "replace")[:HOST_BYTES].decode("ascii")
