# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the order service of the quarter: five queues, their handlers, and the services that these call.

The handlers are like those of any service: they contain nothing about policies, clocks or simulations. The services
take their time on the simulated clock, and fail as `trouble` says.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trouble
from trouble import Fate

from redeliver_mw import App, Delivery, RetryAfter, load_policies
from redeliver_mw.testing import ManualClock

QUEUES = ("orders", "payments", "mails", "invoices", "imports")

POLICIES = Path(__file__).with_name("policies.toml")


class WarehouseDown(ConnectionError):
    """Means that the warehouse cannot be reached."""


class WarehouseBusy(Exception):
    """Recovers by itself, in seconds."""


class OutOfStock(Exception):
    """Recovers when the next delivery of goods arrives."""


class ProviderDown(ConnectionError):
    """Means that the payment provider cannot be reached."""


class ProviderTimeout(TimeoutError):
    """Recovers by itself, in seconds to a minute."""


class CardDeclined(Exception):
    """Never recovers."""


class Greylisted(Exception):
    """Comes from a mail server that accepts a mail only at a later try."""


class MailboxUnknown(Exception):
    """Never recovers."""


class DatabaseLocked(Exception):
    """Means that an import has locked the database."""


class ImportConflict(Exception):
    """Recovers when the other import is finished."""


class World:
    """Holds the clock, and the problems of each message: known to the services, but not to the handlers."""

    def __init__(self, clock: ManualClock, fates: Mapping[str, Fate], seed: str) -> None:
        self._clock, self._fates = clock, fates
        self._rng = random.Random(seed)

    @property
    def now(self) -> float:
        return self._clock.now().wall

    def takes(self, seconds: float) -> None:
        """Spend time on work, or on waiting for an answer: between half and one and a half of `seconds`."""
        self._clock.advance(seconds * self._rng.uniform(0.5, 1.5))

    def ails(self, name: str) -> str:
        fate = self._fates[name]
        return fate.ill if self.now < fate.until else ""


class Services:
    """Simulates the services that the handlers call."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reserve(self, order: str) -> None:
        world = self._world
        if trouble.is_down("warehouse", world.now):
            world.takes(0.2)
            raise WarehouseDown("warehouse.internal:8443 refuses connections")
        world.takes(0.012)
        match world.ails(order):
            case "busy":
                raise WarehouseBusy(f"no answer for order {order}")
            case "out of stock":
                raise OutOfStock(f"an article of order {order}")

    def charge(self, order: str) -> None:
        world = self._world
        if trouble.is_down("payments", world.now):
            world.takes(0.4)
            raise ProviderDown("pay.example.com: 503")
        if (rest := trouble.quota_is_back_in(world.now)) > 0:
            world.takes(0.05)
            raise RetryAfter(rest)  # as the provider's own header says
        world.takes(0.03)
        match world.ails(order):
            case "slow":
                world.takes(1.0)
                raise ProviderTimeout(f"no answer for payment {order}")
            case "declined":
                raise CardDeclined(f"card of payment {order}")

    def mail(self, order: str) -> None:
        self._world.takes(0.02)
        match self._world.ails(order):
            case "greylisted":
                raise Greylisted(f"451 try again later: {order}")
            case "unknown mailbox":
                raise MailboxUnknown(f"550 no such user: {order}")

    def look_up(self, invoice: str) -> None:
        """Look up the recipient of an invoice."""
        self._world.takes(0.006)

    def write(self, table: str, name: str, cents: int) -> None:
        world = self._world
        if table != "catalogue" and trouble.is_importing(world.now):
            world.takes(0.5)
            raise DatabaseLocked(f"{table}: lock wait timeout")
        world.takes(0.008)
        match world.ails(name):
            case "busy":
                raise DatabaseLocked(f"{table}: deadlock found")
            case "conflict":
                raise ImportConflict(f"article {name} is being imported")


class Shop:
    """Holds the handlers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_order(self, order: dict[str, Any], delivery: Delivery) -> None:
        self._services.reserve(order["id"])

    def on_payment(self, payment: dict[str, Any], delivery: Delivery) -> None:
        self._services.charge(payment["id"])

    def on_mail(self, mail: dict[str, Any], delivery: Delivery) -> None:
        self._services.mail(mail["id"])

    def on_invoice(self, invoice: dict[str, Any], delivery: Delivery) -> None:
        self._services.look_up(invoice["id"])
        cents = sum(line["cents"] * line["pieces"] for line in invoice["lines"])
        self._services.write("invoices", invoice["id"], cents)

    def on_import(self, article: dict[str, Any], delivery: Delivery) -> None:
        self._services.write("catalogue", article["id"], article["cents"])


def make_app(journal: str | os.PathLike[str]) -> App:
    """Return the service on a broker in memory, without its handlers."""
    url = "memory://?personality=artemis"  # a personality whose own schedule keeps a retry copy for any delay
    # Each failure is in the journal; as lines of a log they would be two for each attempt.
    return App(url, policy=load_policies(POLICIES), journal=journal, app_name="order-service", log_failures=False)


def serve(app: App, services: Services) -> None:
    """Register the handlers."""
    shop = Shop(services)
    handlers = (shop.on_order, shop.on_payment, shop.on_mail, shop.on_invoice, shop.on_import)
    for queue, handler in zip(QUEUES, handlers, strict=True):
        app.handler(queue, decode=json.loads)(handler)
