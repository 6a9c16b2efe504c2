# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The public interface as users write it. Never run: it has to pass `mypy --strict`, see test_typing.py."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

from tenacity import wait_exponential

from redeliver_mw import (
    App,
    Delivery,
    Destination,
    Idempotency,
    PolicyMap,
    RedeliveryPolicy,
    Reject,
    RetryAfter,
    connect,
    current_delivery,
    load_policies,
    redeliver,
)
from redeliver_mw import Order as OrderByKey
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.policy import Backoff


@dataclass
class Order:
    number: int

    @classmethod
    def parse(cls, body: bytes) -> Order:
        return cls(int(body))


# Policies
policy = RedeliveryPolicy(dead_after=7, backoff=[1, 5.0, 30], dead_letter="queue:DLQ.$", fatal=ValueError)
assert_type(policy, RedeliveryPolicy)
RedeliveryPolicy()
RedeliveryPolicy(backoff=wait_exponential(multiplier=1.5, max=60), retry_on=(OSError, TimeoutError))
RedeliveryPolicy(dead_after=None, dead_letter=None, on_dead="keep")
RedeliveryPolicy(dead_letter=["queue:a", Destination("b", "topic")], ignore=lambda error: "old" in str(error))
assert_type(RedeliveryPolicy.parse("3:25; 5:50; 10:move(queue:dlq$error)"), RedeliveryPolicy)
assert_type(policy.backoff, Backoff)
policy.decide(3, elapsed=12.5, error=ValueError("x"))
assert_type(load_policies("3:25"), PolicyMap)
assert_type(load_policies(Path("policy.toml"), language="native"), PolicyMap)
assert_type(load_policies("3:25").resolve("orders", kind="queue"), RedeliveryPolicy)


# Handlers
once = Idempotency("sqlite:///limbo.db", ttl=86400.0, key=lambda delivery: str(delivery.json()["order"]))


@once.guard
async def on_return(delivery: Delivery) -> None:
    async with once(delivery) as fresh:
        assert_type(fresh, bool)
    delivery.send("topic:prices", "1.75", {"currency": "EUR"}, after=5, content_type="text/plain")
    delivery.send(Destination("invoices"), delivery.body, delivery.headers)


@redeliver("3:1000; 6:5000; 8:move(queue:dlq.$)")
def on_order(delivery: Delivery) -> None:
    assert_type(delivery.body, bytes)
    assert_type(delivery.text, str)
    assert_type(delivery.failures, int)
    assert_type(delivery.delivery_count, int)
    assert_type(delivery.redelivered, bool)
    assert_type(delivery.destination, Destination)
    assert_type(delivery.message_id, str | None)
    assert_type(delivery.last_error, str | None)
    assert_type(delivery.headers, dict[str, Any])
    delivery.state["seen"] = "yes"
    if delivery.failures > 3:
        raise Reject("three are enough")
    raise RetryAfter(30, count=False)


@redeliver(policy)
async def on_price(delivery: Delivery) -> int:
    assert_type(current_delivery(), Delivery)
    price: int = delivery.json()["price"]
    return price + 1


def on_decoded(order: Order, delivery: Delivery) -> None:
    assert_type(order.number, int)


def on_batch(deliveries: list[Delivery]) -> None:
    assert_type(deliveries[0].text, str)


def on_record(record: AttemptRecord) -> None:
    outcome: str = record.outcome
    assert_type(outcome, str)


# A marked function is still the function that it was.
def call_it(delivery: Delivery) -> None:
    assert_type(on_order(delivery), None)


# The runtime
app = App("rabbitmq://guest:guest@localhost:5672/", policy=policy, journal="journal/", prefetch=100, workers=2)
App(policy="3:1000", delay="hold", stop_timeout=10.0)
app.handler("orders", workers=4, prefetch=100)(on_order)
app.handler(Destination("prices", "topic"))(on_price)
app.handler("decoded", decode=Order.parse)(on_decoded)
app.handler("ordered", key="customer")(on_order)
bounded = OrderByKey(lambda delivery: delivery.text[0], max_waiting=20, max_wait=60.0, overflow="skip")
app.handler("bounded", key=bounded)(on_order)
app.handler("batched", batch=50)(on_batch)
app.handler("partial")(functools.partial(on_decoded, Order(1)))
app.on_attempt(on_record)


@app.handler("queue:others", policy="3:25")
def on_other(delivery: Delivery) -> None: ...


def run_it() -> None:
    with app:
        app.pause("orders")
        app.resume("orders")
    app.run(handle_signals=False)


async def run_it_too() -> None:
    async with app:
        pass


# The blocking session
with connect("memory://") as session:
    for d in session.deliveries("orders", policy=policy):
        with d:
            pass

# Errors
try:
    load_policies("nonsense")
except PolicyError as error:
    assert_type(error.cure, str)
except ConfigError:
    pass
