# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines `Notification`, which a callable or a webhook gets, and the sentence in it that people read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from ..errors import counted
from ..redaction import clean, redact, trim_utf8

TroubleKind = Literal["dead-letter", "new-failure", "breaker-open", "source-paused"]
NotificationType = Literal["dead-letter", "new-failure", "breaker-open", "source-paused", "recovered"]
KINDS: Final[tuple[TroubleKind, ...]] = ("dead-letter", "new-failure", "breaker-open", "source-paused")
LINE_BYTES: Final = 300
NAMED_SOURCES: Final = 3  # in the sentence


@dataclass(frozen=True, slots=True)
class Notification:
    """Reports the beginning of an outage, or with the type `recovered` its end.

    - `id`: the same at each try to send the notification.
    - `type`: what the outage began with, or `recovered`.
    - `timestamp`: when the notification was made, in ISO 8601, UTC.
    - `text`: one sentence for people.
    - `data`: the rest, as plain values. The page on notifications lists the fields.
    """

    id: str
    type: NotificationType
    timestamp: str
    text: str
    data: Mapping[str, Any]

    def payload(self) -> dict[str, Any]:
        """Return the notification as plain values, as a webhook gets it."""
        return asdict(self)

    def body(self) -> bytes:
        """Return the JSON that a webhook gets."""
        return json.dumps(self.payload(), ensure_ascii=False, separators=(",", ":")).encode()


def one_line(text: str) -> str:
    """Return the first line of a text without secrets and control characters, at most LINE_BYTES long."""
    first = redact(clean(text.strip()[: 8 * LINE_BYTES])).partition("\n")[0]
    return trim_utf8("".join(c if c.isprintable() else " " for c in first), LINE_BYTES)


def beginning_text(data: Mapping[str, Any]) -> str:
    """Return the sentence about an outage that has begun."""
    what = ", ".join(
        part
        for part in (
            counted(data["dead_letters"], "dead letter") if data["dead_letters"] else "",
            counted(data["new_failures"], "new failure") if data["new_failures"] else "",
            "the breaker is open" if data["breakers_opened"] else "",
            "the source is paused" if data["pauses"] else "",
        )
        if part
    )
    return f"{data['app']}: {_sources(data)}: {what}{_why(data)}{_alone(data)}"


def end_text(data: Mapping[str, Any], seconds: float) -> str:
    """Return the sentence about an outage that is over, of which first and last trouble were so many seconds apart."""
    failures = counted(data["failures"], "failed attempt")
    dead = counted(data["dead_letters"], "dead letter") if data["dead_letters"] else "no dead letter"
    what = f"recovered: {failures} and {dead} within {_duration(seconds)}"
    return f"{data['app']}: {_sources(data)}: {what}{_alone(data)}"


def _sources(data: Mapping[str, Any]) -> str:
    names = [one["source"] for one in data["sources"]]
    more = len(names) - NAMED_SOURCES + data["more_sources"]
    return ", ".join(names[:NAMED_SOURCES]) + (f" and {counted(more, 'more source')}" if more > 0 else "")


def _why(data: Mapping[str, Any]) -> str:
    errors: Sequence[Mapping[str, Any]] = data["errors"]
    if errors:
        first = errors[0]
        message = f": {first['message']}" if first["message"] else ""
        return f"; {first['type']}{message} (fingerprint {first['fingerprint']})"
    return next((f"; {one['why']}" for one in data["sources"] if one["why"]), "")


def _alone(data: Mapping[str, Any]) -> str:
    return "; this is of one process, because the store is away" if data["scope"] == "store-away" else ""


def _duration(seconds: float) -> str:
    """Return a length of time for people: `40 s`, `12 min`, `3 h 5 min`."""
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
