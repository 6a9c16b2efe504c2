# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the fields of a dead letter that a filter may name. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

FieldKind = Literal["text", "number", "time", "age"]


@dataclass(frozen=True, slots=True)
class FilterField:
    """Describes one field: its name in a filter, its kind, and the name of its column in the store.

    `FilterSubject` has an attribute with the name of the column. The field `age` is read from the time of death.
    """

    name: str
    kind: FieldKind
    column: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class HeaderField:
    """Names one header of a dead letter. The name is compared as it is, with its case."""

    name: str


_ALL = (
    FilterField("id", "text", "dl_id"),
    FilterField("queue", "text", "queue"),
    FilterField("source", "text", "source"),
    FilterField("broker", "text", "broker"),
    FilterField("state", "text", "state"),
    FilterField("reason", "text", "reason"),
    FilterField("error", "text", "error_type"),
    FilterField("message", "text", "error_message"),
    FilterField("fingerprint", "text", "fingerprint"),
    FilterField("app", "text", "app"),
    FilterField("failures", "number", "failures"),
    FilterField("generation", "number", "generation"),
    FilterField("bytes", "number", "body_bytes"),
    FilterField("died", "time", "died_us"),
    FilterField("collected", "time", "collected_us"),
    FilterField("age", "age", "died_us"),
    FilterField("key", "text", "message_key"),
    FilterField("content_type", "text", "content_type"),
    FilterField("replay_id", "text", "replay_id"),
)

FIELDS: Mapping[str, FilterField] = MappingProxyType({field.name: field for field in _ALL})

# What other tools and our own tables call a field, for the cure of an error.
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "attempts": "failures",
        "body_bytes": "bytes",
        "collected_at": "collected",
        "collected_us": "collected",
        "destination": "source",
        "died_at": "died",
        "died_us": "died",
        "dl_id": "id",
        "dlq": "queue",
        "error_fingerprint": "fingerprint",
        "error_message": "message",
        "error_type": "error",
        "message_key": "key",
        "original_destination": "source",
        "size": "bytes",
        "status": "state",
        "text": "message",
        "type": "error",
    }
)
