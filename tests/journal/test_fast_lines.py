# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the short ways to a journal line and to a message's key with the long ones: they give the same."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika.spec import Basic

from redeliver_mw.journal.consumer_info import ConsumerInfo
from redeliver_mw.journal.encoding import RecordIds
from redeliver_mw.journal.fast_lines import FastLineEncoder
from redeliver_mw.journal.recorder import healthy_record
from redeliver_mw.journal.records import to_line
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.redelivery.copies import Provenance
from redeliver_mw.redelivery.delays import DelayOptions
from redeliver_mw.redelivery.plan import SourcePlan
from redeliver_mw.testing import make_delivery
from redeliver_pika import messages as pika_mapping
from redeliver_pika.amqp.properties import RawProperties
from redeliver_proton import messages as proton_mapping
from redeliver_stomp import messages as stomp_mapping
from redeliver_stomp.frames import RawFrame, escaped

ORDERS = Destination("or%ders")
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
RUN = "0123456789ab"


def by_pika(message_id: str | None, timestamp: int | None, group: str | None, body: bytes) -> Delivery:
    made = RawProperties.of(message_id=message_id, timestamp=timestamp, headers={"a": 1}, content_type="x", priority=4)
    method = Basic.Deliver(delivery_tag=5, redelivered=False, exchange="", routing_key="orders")
    return pika_mapping.delivery_of(ORDERS, 1, (method, RawProperties.from_raw(b"".join(made.encode())), body))


def by_stomp(message_id: str | None, timestamp: int | None, group: str | None, body: bytes) -> Delivery:
    given = {"ack": "1", "message-id": message_id, "timestamp": timestamp, "JMSXGroupID": group}
    lines = [f"{name}:{escaped(str(value))}" for name, value in given.items() if value is not None]
    return stomp_mapping.delivery_of(ORDERS, 1, RawFrame("\n".join(["MESSAGE", *lines]).encode(), body))


def by_proton(message_id: str | None, timestamp: int | None, group: str | None, body: bytes) -> Delivery:
    message = proton.Message(body, id=message_id, group_id=group, creation_time=(timestamp or 0) / 1000)
    return proton_mapping.delivery_of(ORDERS, 1, 5, message.encode())


def by_memory(message_id: str | None, timestamp: int | None, group: str | None, body: bytes) -> Delivery:
    return make_delivery(body, destination=ORDERS, message_id=message_id, group_id=group)


MAKERS: dict[str, Any] = {"pika": by_pika, "stomp": by_stomp, "proton": by_proton, "memory": by_memory}


def plan_of(policy: RedeliveryPolicy, app: str) -> SourcePlan:
    signature = Provenance(ORDERS, app, "host", policy.text, policy.version)
    return SourcePlan(ORDERS, policy, DelayOptions("hold", 1, 1.0, None, 0.2), signature)


@pytest.mark.parametrize("kind", MAKERS)
@given(
    message_id=st.none() | TEXTS.filter(lambda text: len(text.encode("utf-8", "replace")) < 200),
    timestamp=st.none() | st.integers(1, 2**40),
    group=st.none() | TEXTS,
    body=st.binary(max_size=40),
    app=st.text(max_size=20),
    at_us=st.integers(1, 2**52),
    ran_us=st.integers(0, 2**40),
    arms=st.booleans(),
    redelivered=st.booleans(),
)
def test_the_short_line_is_that_of_the_whole_record(
    kind: str,
    message_id: str | None,
    timestamp: int | None,
    group: str | None,
    body: bytes,
    app: str,
    at_us: int,
    ran_us: int,
    arms: bool,
    redelivered: bool,
) -> None:
    def made() -> Delivery:
        delivery: Delivery = MAKERS[kind](message_id, timestamp, group, body)
        delivery.redelivered = redelivered
        return delivery

    policy = RedeliveryPolicy(3, [0.2])
    if arms:
        policy = RedeliveryPolicy(3, [0.2], arms={"slow": (0.5, RedeliveryPolicy(3, [2.0]))})
    plan, scene = plan_of(policy, app), ConsumerInfo(app, "ho%st", "broker", "activemq")
    record = healthy_record(made(), scene, plan, at_us, ran_us)
    record.record_id = f"{RUN}-1"
    assert FastLineEncoder(RecordIds(RUN))(made(), scene, plan, at_us, ran_us) == to_line(record)


@pytest.mark.parametrize("kind", MAKERS)
@given(
    message_id=st.none() | TEXTS.filter(lambda text: len(text.encode("utf-8", "replace")) < 200),
    timestamp=st.none() | st.integers(1, 2**40),
    group=st.none() | TEXTS,
)
def test_the_identity_is_what_the_properties_say(
    kind: str, message_id: str | None, timestamp: int | None, group: str | None
) -> None:
    short, long = (MAKERS[kind](message_id, timestamp, group, b"x") for _ in range(2))
    properties = long.properties
    assert short.identity == (properties.message_id, properties.timestamp_us, properties.group_id)
    assert long.identity == short.identity


@given(st.binary(max_size=80))
def test_bytes_that_are_no_properties_are_recognised_either_way(raw: bytes) -> None:
    """What is cut off is an error for whoever looks at the part that is missing."""
    method = Basic.Deliver(delivery_tag=5, redelivered=False, exchange="", routing_key="orders")
    short, long = (pika_mapping.delivery_of(ORDERS, 1, (method, RawProperties.from_raw(raw), b"")) for _ in range(2))
    try:
        properties = long.properties
    except ValueError:
        return
    assert short.identity == (properties.message_id, properties.timestamp_us, properties.group_id)
