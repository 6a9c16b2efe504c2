# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Adds redelivery to a plain proton consumer by changing one line. Needs Artemis; REDELIVER_URL is its address."""

import os

from proton import Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, SenderOption
from proton.utils import BlockingConnection

from redeliver_proton import redelivering

URL = os.environ.get("REDELIVER_URL", "artemis://admin:admin@localhost:5672").replace("artemis", "amqp", 1)
POLICY = "1:500; 3:move(queue:dlq.$)"  # delay 0.5 s after each failure; dead-lettered after the third
QUEUE, DEAD = "dropin.orders", "dlq.dropin.orders"


class AsQueue(SenderOption):
    """Makes the broker create a queue, not a topic, for a new name."""

    def apply(self, sender):
        sender.target.capabilities.put_object(symbol("queue"))


class Orders(MessagingHandler):
    """Is unchanged: works, accepts by itself, raises."""

    def on_start(self, event):
        self.connection = event.container.connect(URL)
        event.container.create_receiver(self.connection, QUEUE)
        event.container.create_receiver(self.connection, DEAD, handler=Letters())

    def on_message(self, event):
        attempt = (event.message.properties or {}).get("JMSXDeliveryCount", 1)
        print(f"attempt {attempt} at {event.message.body}", flush=True)
        if event.message.body == "broken order":
            raise ValueError("no such article")
        if event.message.body == "slow order" and attempt < 2:
            raise TimeoutError("the warehouse does not answer")


class Letters(MessagingHandler):
    def on_message(self, event):
        headers = event.message.properties
        print(f"dead letter: {event.message.body}, from {headers['original-destination']}")
        print(f"failures: {headers['redeliver_failures']}, {headers['redeliver_error_type']}")
        self.accept(event.delivery)
        event.connection.close()


shop = BlockingConnection(URL)
for queue in (QUEUE, DEAD):
    sender = shop.create_sender(queue, name=f"to {queue}", options=AsQueue())
    if queue == QUEUE:
        for body in ("good order", "slow order", "broken order"):
            sender.send(Message(body=body, durable=True))
shop.close()

# This was: Container(Orders()).run()
Container(redelivering(Orders(), policy=POLICY)).run()
