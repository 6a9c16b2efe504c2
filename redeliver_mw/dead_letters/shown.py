# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts headers, bodies and histories of messages to JSON values for people, without secrets. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..redaction import MARK, redact, redact_bytes
from ..redelivery.headers import AttemptHistory
from ..storage.header_values import without_class

HEX_BYTES = 256  # of a body that is not text


def headers_shown(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return headers as JSON values; secrets in names and values are hidden."""
    return {redact(name): _value(value, secret=is_telling(name)) for name, value in headers.items()}


def body_of(body: bytes) -> dict[str, str]:
    """Return the `body` as redacted text if it is UTF-8, else its beginning in hex.

    `body_encoding` gives the encoding.
    """
    try:
        return {"body": redact(body.decode("utf-8")), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        more = f" … {len(body)} bytes" if len(body) > HEX_BYTES else ""
        shown = redact_bytes(body[: 2 * HEX_BYTES])[:HEX_BYTES]
        return {"body": shown.hex(" ") + more, "body_encoding": "hex"}


def history_as_json(attempts: AttemptHistory) -> list[dict[str, Any]]:
    return [{"at_s": a.at_us / 1e6, "fingerprint": a.fingerprint, "host": a.host, "delay_s": a.delay} for a in attempts]


def is_telling(name: str) -> bool:
    """Return whether a name indicates that its value is a secret."""
    return MARK in redact(f"{name}=x")


def _value(value: Any, *, secret: bool) -> Any:
    """Return the value as a JSON value; a secret, and everything nested in it, becomes `***`."""
    value = without_class(value)
    if isinstance(value, list):
        return [_value(item, secret=secret) for item in value]
    if isinstance(value, dict):
        named = ((str(without_class(key)), item) for key, item in value.items())
        return {redact(key): _value(item, secret=secret or is_telling(key)) for key, item in named}
    if isinstance(value, bool | None):
        return value
    if secret:
        return MARK if value not in ("", b"") else ""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return redact(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value))
