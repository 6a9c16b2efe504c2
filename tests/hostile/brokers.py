# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Names the brokers that are tried, each with the driver that is tried on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.brokers import Broker, broker
from tests.hostile.amqp091 import Pika
from tests.hostile.amqp10 import Artemis, RabbitProton
from tests.hostile.carrier import Carrier
from tests.hostile.stomp12 import Stomp

BROKERS: dict[str, tuple[str, str, type[Carrier]]] = {
    "activemq63": ("activemq", "6.3", Stomp),
    "activemq518": ("activemq", "5.18", Stomp),
    "artemis244": ("artemis", "2.44", Artemis),
    "rabbitmq43": ("rabbitmq", "4.3", Pika),
    "rabbitmq43-amqp10": ("rabbitmq", "4.3", RabbitProton),
    "rabbitmq310": ("rabbitmq", "3.10", Pika),
}


@contextlib.contextmanager
def carrier_for(name: str) -> Iterator[Carrier]:
    """Run a broker of one's own, and yield its carrier."""
    kind, version, of = BROKERS[name]
    with _running(kind, version) as running:
        carrier = of(running)
        try:
            yield carrier
        finally:
            carrier.close()


def _running(kind: str, version: str) -> Broker:
    """Return the broker to run: ActiveMQ is always one of ours, as a plugin is asked for the depth of its queues."""
    if kind != "activemq":
        return broker(kind, version=version)
    return broker(kind, version=version, plugins="<statisticsBrokerPlugin/>")
