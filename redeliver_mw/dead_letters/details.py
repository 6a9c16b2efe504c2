# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what is stored about a letter outside of its queue: its id, its message's key, its headers as texts. Pure.

The lake and the store have the same values, because the same function reads them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..adapter.capabilities import Capabilities
from ..errors import NotCopyable
from ..message import Death, Delivery, Destination
from ..redelivery.headers import PREFIX, read_history_headers
from ..redelivery.identity import message_key
from ..storage.header_values import without_class
from .letter import DeadLetterInfo, letter_of

_ID: Final = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)  # ids that are used unchanged


class LetterDetails(NamedTuple):
    """Describes a letter as it is stored.

    `dl_id` is the id that docs/drain.md describes, without an ordinal. `known_by` is the kind of the id (`copy`: our
    own copy's id; `id`: a message id; empty: a digest of the letter's contents). `may_be_back`: the letter may have
    been delivered before.
    """

    info: DeadLetterInfo
    dl_id: str
    known_by: str
    may_be_back: bool
    message_key: str | None
    headers: dict[str, str]
    died_us: int | None  # None: neither we nor the broker wrote a time
    body_digest: str  # sha256, in hex
    problem: str  # why it cannot be sent back, or not copied; empty when it can


def details_of(delivery: Delivery, broker: str, dlq: Destination, capabilities: Capabilities) -> LetterDetails:
    """Return what is stored about a letter in `dlq`. Never raises for headers that another program wrote."""
    problem = _uncopyable(delivery)  # cheapest before other parts of the message are read
    letter = letter_of(delivery, capabilities)
    headers = _texts(delivery.headers)
    death = delivery.reader.death(delivery.native) if letter.evidence == "broker" else None
    died_us = round(letter.since * 1e6) if letter.since is not None else death.at_us if death else None
    digest = hashlib.sha256(delivery.body)
    dl_id, known_by = _identity(broker, dlq, delivery, headers, letter, digest.digest(), died_us, death)
    return LetterDetails(
        info=letter,
        dl_id=dl_id,
        known_by=known_by,
        # A letter without an id needs the broker's own redelivery mark: among many equal letters, a weaker sign would
        # match too many.
        may_be_back=delivery.redelivered or bool(known_by and not capabilities.marks_returns),
        message_key=_message_key(delivery, headers, letter),
        headers=headers,
        died_us=died_us,
        body_digest=digest.hexdigest(),
        problem=letter.problem or problem,
    )


def _identity(
    broker: str,
    dlq: Destination,
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
    native = (broker, dlq.short, delivery.message_id, died_us, death.count if death else 0)
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


def _uncopyable(delivery: Delivery) -> str:
    """Return why the letter can be stored but not copied; empty if a copy can be made."""
    try:
        delivery.reader.headers_bytes(delivery.native)
    except NotCopyable as error:
        return error.message
    return ""


def _texts(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return all headers as texts. Most names and values are plain text already, which is found out fast here."""
    return {
        name if type(name) is str and name.isascii() else stored_text(name): value
        if type(value) is str and value.isascii()
        else stored_text(value)
        for name, value in headers.items()
    }


def stored_text(value: Any) -> str:
    """Return the value as text that UTF-8 can encode."""
    value = without_class(value)
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, dict | list):
        return json.dumps(_items_without_class(value), default=stored_text, ensure_ascii=False)
    return str(value)


def _items_without_class(value: Any) -> Any:
    """Return lists and tables as Python's own classes; values that JSON cannot express are left for `default`."""
    value = without_class(value)
    if isinstance(value, list):
        return [_items_without_class(item) for item in value]
    if isinstance(value, dict):
        return {stored_text(name): _items_without_class(item) for name, item in value.items()}
    return value
