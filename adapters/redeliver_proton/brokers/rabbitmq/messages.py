# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns RabbitMQ's AMQP 1.0 messages into `Delivery`, and back. Pure.

A message that was given back with a delay has our headers as annotations, where the broker puts them: they stand in
for all headers of ours that it had as a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redeliver_mw.message import Death, Delivery, Destination, Outgoing
from redeliver_proton.amqp.codec import Malformed, items, read
from redeliver_proton.amqp.sections import Received
from redeliver_proton.brokers.rabbitmq.capabilities import BROKERS_ANNOTATIONS
from redeliver_proton.consumer import MARK
from redeliver_proton.duplicate_ids import DuplicateIdSalts
from redeliver_proton.messages import ProtonReader, application_of, encode
from redeliver_proton.sender_link import seen_as

OURS = "redeliver_"
FIRST_DEATH_QUEUE, FIRST_DEATH_REASON = "x-first-death-queue", "x-first-death-reason"
_FIRST_ACQUIRER, _DELIVERY_COUNT = 3, 4  # in the header
_HEADER = 3  # bytes of the descriptor before it


class RabbitReader(ProtonReader):
    """Reads what a link of RabbitMQ's brought."""

    def headers(self, native: Received, /) -> dict[str, Any]:
        found = super().headers(native)
        marks = {
            name.removeprefix(MARK): read(native.raw, at)
            for name, (at, _) in native.annotations.items()
            if name.startswith(MARK + OURS)
        }
        if marks:
            found = {name: value for name, value in found.items() if not name.startswith(OURS)} | marks
        return found

    def annotations(self, native: Received, /) -> Mapping[str, Any]:
        """Return what a client of AMQP 0-9-1 sent as headers whose names begin with `x-`."""
        return {
            name: read(native.raw, at)
            for name, (at, _) in native.annotations.items()
            if name.startswith("x-") and not name.startswith(BROKERS_ANNOTATIONS)
        }

    def route(self, native: Received, /) -> Mapping[str, str]:
        exchange, key = native.annotation("x-exchange"), native.annotation("x-routing-key")
        return {"exchange": str(exchange or ""), "routing_key": str(key or "")}

    def death(self, native: Received, /) -> Death | None:
        queue = native.annotation(FIRST_DEATH_QUEUE) or application_of(native, FIRST_DEATH_QUEUE)
        if not queue:
            return None
        reason = native.annotation(FIRST_DEATH_REASON) or application_of(native, FIRST_DEATH_REASON)
        return Death(Destination(str(queue)), str(reason or ""))


READER = RabbitReader()


def delivery_of(source: Destination, generation: int, tag: int, raw: bytes) -> Delivery:
    native = Received(raw)
    return Delivery(source, generation, tag, _came_before(native), native, READER)


def _came_before(native: Received) -> bool:
    """Return whether anybody had the message before: the broker names its first consumer on every message."""
    try:
        fields = items(native.raw, _HEADER) if native.raw[:_HEADER] == b"\x00\x53\x70" else []
        first = read(native.raw, fields[_FIRST_ACQUIRER]) if len(fields) > _FIRST_ACQUIRER else None
        count = read(native.raw, fields[_DELIVERY_COUNT]) if len(fields) > _DELIVERY_COUNT else 0
    except (Malformed, IndexError):
        return False
    return first is not True or bool(count)


def encoded(out: Outgoing, after: float, _salts: DuplicateIdSalts) -> tuple[bytes, str]:
    """Return the encoded message, which is never delayed, and which no filter sees."""
    assert after <= 0, "this broker delays no copies"
    return encode(out, biting=BROKERS_ANNOTATIONS), seen_as(out)
