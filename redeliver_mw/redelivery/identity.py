# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the keys that identify a message, its redeliveries and its copies. Pure.

A message without an id is identified by its *twin key*: everything about the message that survives a redelivery.
Identical messages share that key and are interchangeable as far as counts go.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from typing import cast

from ..adapter.capabilities import Capabilities
from ..message import Delivery, Destination, Identity, Past, SupportsTwins

_HALF = 16  # bytes of a digest, for each of its parts
TWIN = "x"  # prefix of a twin key; the keys of messages with an id are hexadecimal
TWIN_CHARS = 32


def message_key(delivery: Delivery, past: Past) -> str | None:
    """Return the message's own id across copies: its lineage, or a hash; None if nothing identifies it."""
    return past.lineage or own_key(delivery)


def own_key(delivery: Delivery) -> str | None:
    """Return the key that a message has before any copy of it; a delivery is hashed once."""
    if delivery.own_key is None:
        delivery.own_key = key_of(str(delivery.destination), delivery.identity, delivery.body)
    return delivery.own_key


def key_of(source: str, identity: Identity, body: bytes) -> str | None:
    """Return the key of a message without history; `source` is the full name of its destination, with its kind."""
    if identity.message_id is None:
        return None
    seed = f"{source}\0{identity.message_id!r}\0{identity.timestamp_us!r}"
    return hashlib.sha256(seed.encode("utf-8", "backslashreplace") + body).hexdigest()[:32]


def twin_key(delivery: Delivery, capabilities: Capabilities) -> str:
    """Return what identical messages without an id have in common: everything that a redelivery does not change."""
    reader, native = delivery.reader, delivery.native
    source, body = str(delivery.destination), delivery.body
    if _knows_twins(type(reader)):
        rest, headers = cast(SupportsTwins, reader).twin(native)
    else:
        headers = delivery.headers
        route = sorted(reader.route(native).items())
        rest = f"{route!r}\0{replace(delivery.properties, ttl_us=None)!r}".encode("utf-8", "backslashreplace")
    found = hashlib.sha256(source.encode())
    found.update(rest)
    if headers:
        kept = [
            (repr(name), repr(value))
            for name, value in headers.items()
            if name not in capabilities.strip and not name.startswith(capabilities.strip_prefixes)
        ]
        if kept:
            found.update(repr(sorted(kept)).encode("utf-8", "backslashreplace"))
    found.update(b"\0")
    found.update(body)
    return TWIN + found.hexdigest()[: TWIN_CHARS - 1]


@functools.cache
def _knows_twins(reader: type[object]) -> bool:
    """Return whether readers of this class have `twin`."""
    return issubclass(reader, SupportsTwins)


def ledger_key(key: str, past: Past) -> str:
    """Return the key of one hop of one generation of one message."""
    return f"{key}/{past.generation}/{past.hop}"


def digest(delivery: Delivery) -> bytes:
    """Return a digest of id and body.

    It tells messages apart that carry the same lineage because a handler forwarded its headers.
    """
    seed = repr(delivery.identity.message_id).encode("utf-8", "backslashreplace")
    return hashlib.sha256(seed).digest()[:_HALF] + hashlib.sha256(delivery.body).digest()[:_HALF]


def same_body(one: bytes, other: bytes) -> bool:
    """Return whether two digests have the same body.

    ActiveMQ gives a copy that was sent twice two ids, but it is one copy.
    """
    return one[_HALF:] == other[_HALF:]


def copy_id(lineage: str, generation: int, hop: int, target: Destination) -> str:
    """Return the id of one copy: the same on every try of the copy, never that of another copy (exact-copies)."""
    seed = f"{lineage}\0{generation}\0{hop}\0{target}"
    return hashlib.sha256(seed.encode("utf-8", "backslashreplace")).hexdigest()[:32]
