# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from redeliver_mw.message import Destination
from redeliver_mw.testing import make_delivery


def test_a_delivery_made_by_hand_reads_like_a_real_one() -> None:
    body, kind = b'{"n": 1}', "application/json"
    delivery = make_delivery(body, {"k": 1.75}, failures=2, message_id="m1", content_type=kind)
    assert delivery.json() == {"n": 1}
    assert delivery.headers == {"k": 1.75}
    assert (delivery.failures, delivery.delivery_count, delivery.redelivered) == (2, 3, True)
    assert delivery.message_id == "m1"
    assert delivery.properties.content_type == "application/json"
    assert delivery.destination == Destination("orders")


def test_without_more_it_is_a_first_delivery() -> None:
    delivery = make_delivery("Grüße", destination="topic:prices")
    assert (delivery.text, delivery.delivery_count, delivery.redelivered) == ("Grüße", 1, False)
    assert delivery.destination == Destination("prices", "topic")
    assert delivery.state == {}
