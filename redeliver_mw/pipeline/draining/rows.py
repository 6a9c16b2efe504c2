# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts dead letters to rows of the table `dead_letters`, with their ids.

`dl_id` is the id that docs/drain.md describes, except for the ordinal, which is added when all staged letters are
compared. Two more columns are used until then, and not kept: `known_by`, the kind of the id (`copy`: our own copy's
id; `id`: a message id; empty: a digest of the letter's contents), and `may_be_back`: the letter may have been
delivered before.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ...adapter.capabilities import Capabilities
from ...adapter.protocol import Adapter
from ...dead_letters import DeadLetterInfo, Packed, letter_of, pack
from ...errors import NotCopyable
from ...message import Death, Delivery, Destination
from ...redelivery.headers import PREFIX, read_history_headers
from ...redelivery.identity import message_key
from ...storage.header_values import without_class
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
_ID: Final = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)  # ids that are used unchanged


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
    problem = _uncopyable(delivery)  # cheapest before other parts of the message are read
    letter = letter_of(delivery, run.capabilities)
    headers = {_text(name): _text(value) for name, value in delivery.headers.items()}
    death = delivery.reader.death(delivery.native) if letter.evidence == "broker" else None
    died_us = round(letter.since * 1e6) if letter.since is not None else death.at_us if death else None
    body, properties = delivery.body, delivery.properties
    digest = hashlib.sha256(body)
    dl_id, known_by = _identity(run, delivery, headers, letter, digest.digest(), died_us, death)
    return (
        dl_id,
        _message_key(delivery, headers, letter),
        _text(letter.source.short) if letter.source is not None else "",
        run.dlq.short,
        run.broker,
        staged_us if died_us is None else died_us,
        letter.failures,
        headers.get(PREFIX + "error_fingerprint") or letter.fingerprint or None,
        _text(letter.error_type) or None,
        _text(letter.reason) or None,
        list(headers.items()),
        _text_or_none(properties.content_type),
        body,
        digest.hexdigest(),
        len(body),
        "dlq",
        run.run,
        staged_us,
        run.owner,
        run.capabilities.dialect,
        _text_or_none(delivery.message_id),
        _text_or_none(properties.group_id),
        letter.generation,
        _text(letter.replay_id) or None,
        letter.problem or problem,
        delivery.redelivered,
        packed.head,
        known_by,
        # A letter without an id needs the broker's own redelivery mark: among many equal letters, a weaker sign would
        # match too many.
        delivery.redelivered or bool(known_by and not run.capabilities.marks_returns),
    )


def _identity(
    run: DrainRun,
    delivery: Delivery,
    headers: dict[str, str],
    letter: DeadLetterInfo,
    body: bytes,
    died_us: int | None,
    death: Death | None,
) -> tuple[str, str]:
    """Return the id and its kind.

    Only the id of a dead letter of ours is unique: copies of ours that a broker has dead-lettered, and messages that a
    handler forwarded with all headers, may share an id.
    """
    copy_id = headers.get(PREFIX + "copy_id", "")
    if _ID.fullmatch(copy_id):
        return copy_id, "copy" if letter.evidence == "ours" else "id" if delivery.message_id else ""
    native = (run.broker, run.dlq.short, delivery.message_id, died_us, death.count if death else 0)
    seed = json.dumps(native).encode()
    return hashlib.sha256(seed + body).hexdigest()[:32], "id" if delivery.message_id else ""


def _message_key(delivery: Delivery, headers: dict[str, str], letter: DeadLetterInfo) -> str | None:
    """Return the message key in the journal: the key at the message's source, not in the dead-letter queue."""
    if letter.source is None:
        return None
    if letter.evidence == "ours" and (lineage := headers.get(PREFIX + "lineage")):
        return lineage[:64]  # every reader uses this many characters
    here = Delivery(letter.source, 0, None, delivery.redelivered, delivery.native, delivery.reader)
    return message_key(here, read_history_headers(here))


def _uncopyable(delivery: Delivery) -> str | None:
    """Return why the letter can be stored but not copied; empty if a copy can be made."""
    try:
        delivery.reader.headers_bytes(delivery.native)
    except NotCopyable as error:
        return error.message
    return None


def _text(value: Any) -> str:
    """Return the value as text that UTF-8 can encode."""
    value = without_class(value)
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict | list):
        return json.dumps(_items_without_class(value), default=_text, ensure_ascii=False)
    return str(value)


def _items_without_class(value: Any) -> Any:
    """Return lists and tables as Python's own classes; values that JSON cannot express are left for `default`."""
    value = without_class(value)
    if isinstance(value, list):
        return [_items_without_class(item) for item in value]
    if isinstance(value, dict):
        return {_text(name): _items_without_class(item) for name, item in value.items()}
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)
