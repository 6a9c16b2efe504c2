# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the journal's line of a first delivery that was handled with a fast path: nearly every line is of this kind.

Such a line is, byte for byte, the line of the record that `recorder.healthy_record` makes. The part that all lines of
a source share is written once; only the identity of the message is read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..message import Delivery, text_of
from ..redelivery import identity
from ..redelivery.copies import Provenance
from ..redelivery.plan import NO_PAST, SourcePlan
from .consumer_info import ConsumerInfo
from .encoding import RecordIds, part_of_line, text_in_line


class FastLineEncoder:
    """Encodes lines of one consumer, whose `ConsumerInfo` never changes. Called on the journal's thread."""

    def __init__(self, ids: RecordIds) -> None:
        self._ids = ids
        # Keyed by identity, because hashing a key takes longer than everything else. The keys are kept alive, so that
        # no other object gets the same id.
        self._shapes: dict[int, _Shape] = {}

    def __call__(
        self, delivery: Delivery, consumer_info: ConsumerInfo, plan: SourcePlan, at_us: int, ran_us: int
    ) -> bytes:
        """Return the line, including its newline."""
        shape = self._shape(consumer_info, plan.signature)
        key = identity.own_key(delivery) or identity.digest(delivery).hex()[-32:]
        if plan.policy.arms:
            shape = self._shape(consumer_info, plan.for_message(delivery, NO_PAST, key).signature)
        message_id, group_id = delivery.identity.message_id, delivery.identity.group_id
        return shape.line % (
            self._ids.next().encode(),
            at_us,
            b"" if message_id is None else b',"message_id":' + text_in_line(text_of(message_id)),
            key.encode(),
            b"" if group_id is None else b',"group_id":' + text_in_line(group_id),
            b"true" if delivery.redelivered else b"false",
            ran_us,
            at_us - ran_us,
            len(delivery.body),
        )

    def _shape(self, consumer_info: ConsumerInfo, signature: Provenance) -> _Shape:
        found = self._shapes.get(id(signature))
        if found is None:
            found = _Shape(_line(consumer_info, signature), signature)
            self._shapes[id(signature)] = found
        return found


class _Shape(NamedTuple):
    line: bytes
    signature: Provenance


def _line(consumer_info: ConsumerInfo, signature: Provenance) -> bytes:
    """Return a template of a line in the order of `records.FIELDS`, with places for the fields that differ."""
    source = signature.source
    where = part_of_line(
        app=consumer_info.app,
        host=consumer_info.host,
        broker=consumer_info.broker,
        broker_kind=consumer_info.broker_kind,
        destination=source.name,
        destination_kind=source.kind,
    )
    arm: dict[str, Any] = {"policy_arm": signature.arm, "propensity": signature.propensity}
    policy = part_of_line(
        policy=signature.policy_text,
        policy_version=signature.policy_version,
        **{name: value for name, value in arm.items() if value is not None},
    )
    return (
        b'{"v":1,"record_id":"%b","ts_us":%d,'
        + where.replace(b"%", b"%%")
        + b'%b,"message_key":"%b"%b,"generation":0,"delivery_count":1,"broker_redelivered":%b,"outcome":"accepted",'
        + policy.replace(b"%", b"%%")
        + b',"handler_us":%d,"queue_us":0,"first_attempt_us":%d,"attempts_total":1,"payload_bytes":%d}\n'
    )
