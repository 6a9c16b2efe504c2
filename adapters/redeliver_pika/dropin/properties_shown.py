# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes what a callback sees of a delivery: the count where it would look for it, and the original's route. Pure."""

from __future__ import annotations

from typing import Any

from redeliver_mw.message import Delivery

COUNT = "JMSXDeliveryCount"


def shown(delivery: Delivery) -> tuple[Any, Any, bytes]:
    """Return method, properties and body for the callback.

    They are copied where they differ, so that nothing gets onto our copies. `properties.headers["JMSXDeliveryCount"]`
    is an int, 1 on the first delivery. A retry copy shows the exchange and routing key of the original and is
    `redelivered`, as a message that was given back would be.
    """
    method, properties, body = delivery.native
    seen = _twin(properties)
    seen.headers = {**(properties.headers or {}), COUNT: delivery.failures + 1}
    if delivery.known:
        method = _twin(method)
        method.redelivered = bool(method.redelivered) or delivery.failures > 0
        original = delivery.past.original
        if "redeliver_original_exchange" in original:
            method.exchange = original["redeliver_original_exchange"]
            method.routing_key = original.get("redeliver_original_routing_key", "")
        elif "redeliver_original_routing_key" in original:
            method.exchange, method.routing_key = "", original["redeliver_original_routing_key"]
    return method, seen, body


def _twin(of: Any) -> Any:
    twin: Any = object.__new__(type(of))
    vars(twin).update(vars(of))
    return twin
