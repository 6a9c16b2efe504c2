# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a small order service: three queues, three handlers, three kinds of failure, any broker.

    redeliver run main:app          # consumes until SIGTERM
    python main.py                  # sends itself seven messages and prints the end of each

The broker is that of REDELIVER_URL; without it, the one in memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from redeliver_mw import App, Delivery, RedeliveryPolicy, connect
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.policy import Backoff

URL = os.environ.get("REDELIVER_URL") or "memory://"
QUEUES = ("orders", "payments", "mails")


class WarehouseBusy(Exception):
    """Recovers by itself."""


class CardDeclined(Exception):
    """Never recovers, however often the payment is tried: a poison message."""


class UnknownCurrency(Exception):
    """Is not worth a second attempt."""


class Greylisted(Exception):
    """Comes from a mail server that accepts a mail only at the second try."""


def on_order(order: dict[str, Any], delivery: Delivery) -> None:
    """Reserve an order's items. `order` is decoded already: a body that cannot be decoded never reaches a handler."""
    time.sleep(float(order.get("takes", 0)))
    if delivery.failures < order.get("busy", 0):
        raise WarehouseBusy(f"no answer for order {order['id']}")


def on_payment(delivery: Delivery) -> None:
    payment = delivery.json()
    time.sleep(float(payment.get("takes", 0)))
    if payment["currency"] not in ("EUR", "USD"):
        raise UnknownCurrency(payment["currency"])
    if payment.get("card") == "stolen":
        raise CardDeclined(f"card of payment {payment['id']}")


async def on_mail(delivery: Delivery) -> None:
    mail = delivery.json()
    await asyncio.sleep(float(mail.get("takes", 0)))
    if delivery.failures < mail.get("greylisted", 0):
        raise Greylisted(f"try mail {mail['id']} again later")


Handler = Callable[..., Any]


def make_app(
    url: str = URL,
    prefix: str = "shop.",
    pace: float = 1.0,
    wrap: Callable[[Handler], Handler] = lambda handler: handler,
) -> App:
    """Return the service on the queues `{prefix}orders` and so on; every delay is multiplied by `pace`.

    Each message is tried at most four times, with delays of 1, 2 and 4 seconds. Then the message is moved to
    `dlq.{prefix}orders` and so on. `wrap` is applied to each handler before the handler is registered.
    """
    policy = RedeliveryPolicy(4, Backoff.exponential(pace, 2.0), "queue:dlq.$", fatal=UnknownCurrency)
    app = App(url, policy=policy, declare="all", app_name="order-service")
    app.handler(f"{prefix}orders", workers=2, decode=json.loads)(wrap(on_order))
    app.handler(f"{prefix}payments", workers=2)(wrap(on_payment))
    app.handler(f"{prefix}mails", workers=4)(wrap(on_mail))
    return app


app = make_app()

EXAMPLES = [
    ("orders", b'{"id": 1}'),
    ("orders", b'{"id": 2, "busy": 2}'),  # recovers at the third attempt
    ("orders", b"<order id='3'/>"),  # cannot be decoded
    ("payments", b'{"id": 4, "currency": "EUR"}'),
    ("payments", b'{"id": 5, "currency": "EUR", "card": "stolen"}'),  # poison
    ("payments", b'{"id": 6, "currency": "XAU"}'),  # fatal
    ("mails", b'{"id": 7, "greylisted": 1}'),  # recovers at the second attempt
]


def main() -> None:
    """Send the examples, wait for the end of each, and print it."""
    app = make_app(pace=0.25)
    ends: dict[str, AttemptRecord] = {}
    all_ended = threading.Event()

    @app.on_attempt
    def on_attempt(record: AttemptRecord) -> None:
        if record.outcome in ("accepted", "dead_lettered"):
            ends[record.message_key] = record  # ActiveMQ gives each copy a message id of its own
            if len(ends) == len(EXAMPLES):
                all_ended.set()

    with app, connect(URL) as session:
        for message, (queue, body) in enumerate(EXAMPLES, start=1):
            session.publish(f"shop.{queue}", body, message_id=str(message))
        all_ended.wait(30)
        print(*sorted(map(sentence_of, ends.values())), sep="\n")
        for queue in QUEUES[:2]:
            print(f"dlq.shop.{queue}:", drain(session, f"dlq.shop.{queue}"))


def sentence_of(record: AttemptRecord) -> str:
    end = f"{record.outcome}, {record.reason}" if record.reason else record.outcome
    error = f", {record.error_type}" if record.error_type else ""
    return f"{record.destination}: {end} at delivery {record.delivery_count}{error}"


def drain(session: Any, queue: str) -> str:
    """Take every dead letter out of `queue`."""
    found = []
    while letter := session.receive(queue, timeout=1.0):
        found.append(f"{letter.text} from {letter.headers['redeliver_original_destination']}")
        session.settle(letter)
    return "; ".join(sorted(found))


if __name__ == "__main__":
    main()
