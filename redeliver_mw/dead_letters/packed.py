# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Packs dead letters into bytes to keep them outside of their broker, and unpacks them to be sent back. Pure.

The copy of a packed letter is bit for bit the copy that the letter from its queue would have, because the same function
makes both. An adapter of the same dialect can send what the letter's adapter has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from ..adapter.capabilities import Capabilities
from ..errors import NotCopyable
from ..message import Delivery, Destination, MessageReader, Outgoing, SupportsImages, SupportsPacking
from .frameworks import sent_back


@dataclass(frozen=True, slots=True)
class Packed:
    """Holds a letter as it was in `dlq`. `head` is packed by its reader; `body` is beside it, byte for byte."""

    dlq: Destination
    redelivered: bool
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Edits:
    """Lists changes to a letter before it is sent back: another body, headers to set, and headers to remove (None)."""

    body: bytes | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


def pack(delivery: Delivery) -> Packed:
    """Pack a letter. Raises NotCopyable if it cannot be restored exactly; then the letter has to stay in its queue."""
    reader = _packing(delivery.reader, delivery.destination)
    return Packed(delivery.destination, delivery.redelivered, reader.pack(delivery.native), delivery.body)


def unpack(packed: Packed, reader: MessageReader) -> Delivery:
    """Return the delivery again, without a generation, so that nothing can settle it.

    `reader` belongs to an adapter of the letter's dialect. Raises NotCopyable if this reader cannot read the bytes.
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
    """Return the letter's copy for `source`: the same copy at each call, in every process (exact-copies).

    `replay_id`, `lineage` and `known_as` are the same as for `sent_back`. `salt` distinguishes this letter in this
    replay from all others: a broker that suppresses duplicates drops the second of two sends with the same salt. Raises
    NotCopyable as for other copies.
    """
    delivery = unpack(packed, reader)
    out = sent_back(delivery, source, capabilities, replay_id=replay_id, lineage=lineage, known_as=known_as)
    # A copy without an image needs no origin: no broker has the letter, so a lost link has no consequence for it.
    out = replace(out, duplicate_salt=salt, origin=out.origin if _has_images(type(reader)) else None)
    return out if edits is None else _edited(out, edits)


def _packing(reader: MessageReader, dlq: Destination) -> SupportsPacking:
    if not _packs(type(reader)):
        raise NotCopyable("messages of this adapter cannot be kept outside of their broker", where=str(dlq))
    return cast(SupportsPacking, reader)


@cache
def _packs(reader: type[MessageReader]) -> bool:
    """Return whether the reader is `SupportsPacking`. Cached, because a protocol check takes longer than packing."""
    return issubclass(reader, SupportsPacking)


@cache
def _has_images(reader: type[MessageReader]) -> bool:
    """Return whether the reader is `SupportsImages`. Cached for the same reason."""
    return issubclass(reader, SupportsImages)


def _edited(out: Outgoing, edits: Edits) -> Outgoing:
    headers = {**out.headers, **edits.headers}
    kept = {name: value for name, value in headers.items() if value is not None or name not in edits.headers}
    return replace(out, headers=kept, body=out.body if edits.body is None else edits.body)
