# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Dead letters outside of their broker: packed into bytes, and, as deliveries again, sent back from there. Pure.

What comes of a letter that was packed is, to the bit, what would come of it out of its queue: its copy is made by the
same function. What the letter's adapter has read, an adapter of the same dialect sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from ..adapter.capabilities import Capabilities
from ..errors import NotCopyable
from ..message import Delivery, Destination, MessageReader, Outgoing, SupportsImages, SupportsPacking
from ..redelivery.copies import replay_copy


@dataclass(frozen=True, slots=True)
class Packed:
    """A letter as it lay in `dlq`. `head` is what its reader has packed; `body` stands beside it, byte for byte."""

    dlq: Destination
    redelivered: bool
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Edits:
    """What is changed in a letter before it is sent back: another body, headers set, and headers removed (None)."""

    body: bytes | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


def pack(delivery: Delivery) -> Packed:
    """NotCopyable for what cannot be had again exactly: then the letter has to stay in its queue."""
    reader = _packing(delivery.reader, delivery.destination)
    return Packed(delivery.destination, delivery.redelivered, reader.pack(delivery.native), delivery.body)


def unpack(packed: Packed, reader: MessageReader) -> Delivery:
    """The delivery again, of no generation, so nothing can settle it. `reader` is that of an adapter of its dialect.

    NotCopyable for bytes that are no letter of this reader's.
    """
    try:
        native = _packing(reader, packed.dlq).unpack(packed.head, packed.body)
    except ValueError as error:
        raise NotCopyable(f"it cannot be read as a message: {error}", where=str(packed.dlq)) from None
    return Delivery(packed.dlq, 0, None, packed.redelivered, native, reader)


def copy_of(
    packed: Packed,
    source: Destination,
    reader: MessageReader,
    capabilities: Capabilities,
    *,
    replay_id: str,
    lineage: str,
    salt: str,
    known_as: str | None = None,
    edits: Edits | None = None,
) -> Outgoing:
    """The letter on its way back to `source`: the same copy each time, whoever makes it (exact-copies).

    `replay_id`, `lineage` and `known_as` are as of `replay_copy`. `salt` tells this letter in this replay from all
    others: a broker that suppresses duplicates takes what is sent twice with it once. NotCopyable as for other copies.
    """
    delivery = unpack(packed, reader)
    out = replay_copy(delivery, source, capabilities, replay_id=replay_id, lineage=lineage, known_as=known_as)
    out = replace(out, duplicate_salt=salt)
    if not isinstance(reader, SupportsImages):
        out = replace(out, origin=None)  # no broker has it: a lost link says nothing of it
    return out if edits is None else _edited(out, edits)


def _packing(reader: MessageReader, dlq: Destination) -> SupportsPacking:
    if not _packs(type(reader)):
        raise NotCopyable("messages of this adapter cannot be kept outside of their broker", where=str(dlq))
    return cast(SupportsPacking, reader)


@cache
def _packs(reader: type[MessageReader]) -> bool:
    """Whether it is `SupportsPacking`: asked once, as asking a protocol takes longer than to pack."""
    return issubclass(reader, SupportsPacking)


def _edited(out: Outgoing, edits: Edits) -> Outgoing:
    headers = {**out.headers, **edits.headers}
    kept = {name: value for name, value in headers.items() if value is not None or name not in edits.headers}
    return replace(out, headers=kept, body=out.body if edits.body is None else edits.body)
