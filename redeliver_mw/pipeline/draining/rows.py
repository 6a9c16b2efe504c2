# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts dead letters to rows of the table `dead_letters`, with their ids.

`dl_id` is the id that docs/drain.md describes, except for the ordinal, which is added when all staged letters are
compared. Two more columns are used until then, and not kept: `known_by` and `may_be_back`, as in
`dead_letters.details`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ...adapter.capabilities import Capabilities
from ...adapter.protocol import Adapter
from ...dead_letters import Packed, details_of, pack, stored_text
from ...message import Delivery, Destination
from ...redelivery.headers import PREFIX
from ..manifests import now_us
from ..schemas import DEAD_LETTERS

_TYPES: Final = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "BOOLEAN": pa.bool_(),
    "BINARY": pa.binary(),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
}
LETTERS: Final = pa.schema(
    [
        (name, _TYPES[kind])
        for name, _, kind in (column.partition(" ") for column in re.split(r",\s*(?![^<]*>)", DEAD_LETTERS))
    ]
)
STAGED: Final = LETTERS.append(pa.field("known_by", pa.string())).append(pa.field("may_be_back", pa.bool_()))


class DrainRun(NamedTuple):
    """Holds the values that all rows of a task share.

    `owner`: `lake`, or `broker` for letters that are only looked at.
    """

    run: str
    broker: str
    dlq: Destination
    capabilities: Capabilities
    owner: str


def run_of(adapter: Adapter, name: str, dlq: Destination, owner: str) -> DrainRun:
    """Return the run of an adapter that is connected."""
    return DrainRun(name, adapter.broker, dlq, adapter.capabilities, owner)


class LetterRows:
    """Collects letters, column by column, for one file."""

    def __init__(self, run: DrainRun) -> None:
        self._run = run
        self._rows: list[tuple[Any, ...]] = []
        self._staged_us = now_us()

    def add(self, delivery: Delivery) -> None:
        """Add a letter. Raises NotCopyable if the letter cannot be restored exactly: then it must stay in its queue."""
        packed = pack(delivery)
        self._rows.append(_row(self._run, delivery, packed, self._staged_us))

    def table(self) -> pa.Table:
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in STAGED)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, STAGED, strict=True)]
        return pa.Table.from_arrays(arrays, schema=STAGED)


def _row(run: DrainRun, delivery: Delivery, packed: Packed, staged_us: int) -> tuple[Any, ...]:
    """Return the values in the order of the columns."""
    found = details_of(delivery, run.broker, run.dlq, run.capabilities)
    letter, body, properties = found.info, delivery.body, delivery.properties
    return (
        found.dl_id,
        found.message_key,
        stored_text(letter.source.short) if letter.source is not None else "",
        run.dlq.short,
        run.broker,
        staged_us if found.died_us is None else found.died_us,
        letter.failures,
        found.headers.get(PREFIX + "error_fingerprint") or letter.fingerprint or None,
        stored_text(letter.error_type) or None,
        stored_text(letter.reason) or None,
        list(found.headers.items()),
        _text_or_none(properties.content_type),
        body,
        found.body_digest,
        len(body),
        "dlq",
        run.run,
        staged_us,
        run.owner,
        run.capabilities.dialect,
        _text_or_none(delivery.message_id),
        _text_or_none(properties.group_id),
        letter.generation,
        stored_text(letter.replay_id) or None,
        found.problem or None,
        delivery.redelivered,
        packed.head,
        found.known_by,
        found.may_be_back,
    )


def _text_or_none(value: Any) -> str | None:
    return None if value is None else stored_text(value)
