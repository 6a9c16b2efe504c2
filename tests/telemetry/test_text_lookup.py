# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares what traces read of each message, without reading all of it, with what the whole message says."""

from __future__ import annotations

from typing import Any

import proton
import pytest

from redeliver_mw.message import Delivery, Destination, SupportsTextLookup, finds_texts
from redeliver_pika.amqp.properties import RawProperties
from redeliver_pika.messages import PikaReader
from redeliver_proton.messages import delivery_of as proton_delivery
from redeliver_stomp.frames import RawFrame
from redeliver_stomp.messages import delivery_of as stomp_delivery
from tests.telemetry.spans import PRODUCER

ORDERS = Destination("orders")
HEADERS = {"traceparent": PRODUCER, "baggage": "tenant=a,c=d:e"}


def by_pika(correlation_id: str | None, headers: dict[str, str]) -> Delivery:
    made = RawProperties.of(headers=headers or None, correlation_id=correlation_id, reply_to="answers")
    properties = RawProperties.from_raw(b"".join(made.encode()))
    return Delivery(ORDERS, 1, 1, False, (None, properties, b"x"), PikaReader())


def by_stomp(correlation_id: str | None, headers: dict[str, str]) -> Delivery:
    of_it = {} if correlation_id is None else {"correlation-id": correlation_id}
    lines = [f"{name}:{value.replace(':', chr(92) + 'c')}" for name, value in (of_it | headers).items()]
    return stomp_delivery(ORDERS, 1, RawFrame("\n".join(["MESSAGE", "message-id:1", *lines]).encode(), b"x"))


def by_proton(correlation_id: str | None, headers: dict[str, str]) -> Delivery:
    properties: Any = headers or None
    message = proton.Message(b"x", correlation_id=correlation_id, properties=properties, reply_to="answers")
    return proton_delivery(ORDERS, 1, 1, message.encode())


@pytest.mark.parametrize("made", [by_pika, by_stomp, by_proton])
@pytest.mark.parametrize("headers", [{}, HEADERS], ids=["no headers", "headers"])
@pytest.mark.parametrize("correlation_id", [None, "c-1", "é" * 20])
def test_single_texts_are_those_of_the_whole_message(made: Any, headers: dict[str, str], correlation_id: Any) -> None:
    delivery = made(correlation_id, headers)
    reader = delivery.reader
    assert isinstance(reader, SupportsTextLookup)
    assert finds_texts(type(reader))
    found = {name: reader.header_text(delivery.native, name) for name in (*HEADERS, "tracestate")}
    assert delivery.correlation_id == correlation_id
    whole = made(correlation_id, headers)
    assert found == {name: whole.headers.get(name) for name in found}
    assert whole.properties.correlation_id == correlation_id
