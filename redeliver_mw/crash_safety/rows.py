# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts an entry of the ledger to a line of the database, and back. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields, replace
from typing import Any

from ..failure import Failure
from ..message import Attempt, Destination, Past
from ..redaction import clean
from ..redelivery.copies import Transfer
from ..redelivery.ledger import LedgerEntry
from ..storage.header_values import BAD

_OF_THE_LINE = ("failures", "not_before_us", "first_failed_us", "last_failed_us")
_KEPT_OF_PAST = [field.name for field in fields(Past) if field.name not in (*_OF_THE_LINE, "last_error")]


def key_of_line(key: str) -> str:
    """Return the ledger's key without spaces, as every database accepts it: any program can write a lineage header."""
    if " " not in key and clean(key) == key:
        return key
    return hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()


def line_of(entry: LedgerEntry) -> dict[str, Any]:
    """Return the columns of an entry's line, without its key, run and mark."""
    past = entry.past
    rest = {
        "lineage": entry.lineage,
        "apart": entry.apart,
        "doubted": entry.doubted,
        "past": {name: _plain(getattr(past, name)) for name in _KEPT_OF_PAST if getattr(past, name)},
        "confirmed": sorted(entry.confirmed),
        "verdict": _of_move(entry.transfer) if entry.transfer is not None else None,
        "failure": _of_failure(entry.failure),
        "last_error": past.last_error,
    }
    encoded = json.dumps({name: value for name, value in rest.items() if value}).encode()
    return {
        "failures": past.failures,
        "not_before_us": past.not_before_us,
        "first_failed_us": past.first_failed_us,
        "last_failed_us": past.last_failed_us,
        "last_error": past.last_error and clean(past.last_error),
        "done": int(entry.done),
        "digest": entry.digest,
        "rest": encoded,
    }


def entry_of(line: Any, lineage: str, past: Past, digest: bytes) -> LedgerEntry:
    """Return the ledger entry of a line; the other arguments give what the line does not contain.

    A value that cannot be read any more (because somebody changed it) counts as missing, which only lowers a count.
    """
    counted = {name: getattr(line, name) for name in _OF_THE_LINE}
    try:
        rest = json.loads(line.rest or b"{}")
        past = replace(past, **rest.get("past", {}))
        past.history = tuple(Attempt(*attempt) for attempt in past.history)
        past = replace(past, **{**counted, "failures": max(past.failures, line.failures)})
        past.last_error = rest.get("last_error")
        return LedgerEntry(
            rest.get("lineage") or lineage,
            past,
            line.digest or digest,
            _move(rest.get("verdict")),
            frozenset(rest.get("confirmed", ())),
            bool(line.done),
            bool(rest.get("apart")),
            bool(rest.get("doubted")),
            _failure(rest.get("failure")),
        )
    except BAD:
        return LedgerEntry(lineage, replace(past, failures=max(past.failures, line.failures)), digest)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | None):
        return value
    return list(value) if isinstance(value, tuple) else dict(value)


def _of_failure(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else asdict(failure) | {"frames": [], "text": ""}


def _failure(kept: dict[str, Any] | None) -> Failure | None:
    return None if kept is None else Failure(**kept)


def _of_move(move: Transfer) -> dict[str, Any] | None:
    """Return a transfer as JSON values.

    None for a handler's sends: their bodies are not kept, so the handler runs again.
    """
    if move.sends:
        return None
    kept: dict[str, Any] = {
        field.name: getattr(move, field.name) for field in fields(Transfer) if field.name != "sends"
    }
    return kept | {"targets": [str(target) for target in move.targets], "failure": _of_failure(move.failure)}


def _move(kept: dict[str, Any] | None) -> Transfer | None:
    if kept is None:
        return None
    targets = tuple(Destination.parse(target) for target in kept["targets"])
    return Transfer(**kept | {"targets": targets, "failure": _failure(kept["failure"])})
