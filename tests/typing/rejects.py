# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Misuse that a type checker has to refuse: each line marked so, and no other. Never run; see test_typing.py."""

from __future__ import annotations

import redeliver_mw
from redeliver_mw import (
    App,
    Delivery,
    Destination,
    RedeliveryPolicy,
    RetryAfter,
    load_policies,
    redeliver,
)
from redeliver_mw.policy import Redelivery  # expect: error

# Policies
RedeliveryPolicy(dead_after="seven")  # expect: error
RedeliveryPolicy(on_dead="forget")  # expect: error
RedeliveryPolicy(maximum=7)  # expect: error
RedeliveryPolicy().dead_after = 3  # expect: error
RedeliveryPolicy().decide("3")  # expect: error
load_policies(3)  # expect: error
load_policies(b"3:25")  # expect: error

# Destinations and signals
Destination("orders", "exchange")  # expect: error
RetryAfter("30")  # expect: error
redeliver_mw.conect("memory://")  # expect: error


# Handlers
@redeliver(7)  # expect: error
def on_order(delivery: Delivery) -> None:
    delivery.failures.append(1)  # expect: error
    delivery.body = "text"  # expect: error
    delivery.state["count"] = 1  # expect: error
    delivery.send("next", {"order": 7})  # expect: error
    delivery.send("next", b"x", after="5 s")  # expect: error


@redeliver("3:25")
def on_price(delivery: Delivery) -> None: ...


on_price("a text is no delivery")  # expect: error

# The runtime
App("memory://", delay="sleep")  # expect: error
App("memory://", workers="2")  # expect: error
App("memory://", prefetch_count=100)  # expect: error
app = App("memory://")
app.handler(7)  # expect: error
app.handler("orders")("not a function")  # expect: error
