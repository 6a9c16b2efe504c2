# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Adds redelivery to a plain stomp.py consumer by changing one line. Needs ActiveMQ; REDELIVER_URL is its address."""

import os
import threading
from urllib.parse import urlsplit

import stomp

from redeliver_stomp import redelivering

URL = urlsplit(os.environ.get("REDELIVER_URL", "activemq://admin:admin@localhost:61613"))
POLICY = "1:500; 3:move(queue:dlq.$)"  # delay 0.5 s after each failure; dead-lettered after the third
QUEUE, DEAD = "/queue/dropin.orders", "/queue/dlq.dropin.orders"


class Orders(stomp.ConnectionListener):
    """Is unchanged: works, acks, raises."""

    def __init__(self, connection):
        self.connection = connection

    def on_message(self, frame):
        attempt = int(frame.headers.get("JMSXDeliveryCount", 1))
        print(f"attempt {attempt} at {frame.body}", flush=True)
        if frame.body == "broken order":
            raise ValueError("no such article")
        if frame.body == "slow order" and attempt < 2:
            raise TimeoutError("the warehouse does not answer")
        self.connection.ack(frame.headers["ack"])


class DeadLetters(stomp.ConnectionListener):
    """Waits for one dead letter."""

    def __init__(self):
        self.came = threading.Event()

    def on_message(self, frame):
        self.frame = frame
        self.came.set()


def connect(connection):
    connection.connect(URL.username, URL.password, wait=True)
    return connection


address = [(URL.hostname, URL.port or 61613)]
connection = stomp.Connection12(address)
# This was: connection.set_listener("", Orders(connection))
connection.set_listener("", redelivering(Orders(connection), connection, policy=POLICY))
connect(connection)
connection.subscribe(QUEUE, id="orders", ack="client-individual")

letters = DeadLetters()
watcher = stomp.Connection12(address)
watcher.set_listener("", letters)
connect(watcher).subscribe(DEAD, id="dead", ack="auto")

for body in ("good order", "slow order", "broken order"):
    connection.send(QUEUE, body, headers={"persistent": "true"})
letters.came.wait(30)

headers = letters.frame.headers
print(f"dead letter: {letters.frame.body}, from {headers['original-destination']}")
print(f"failures: {headers['redeliver_failures']}, {headers['redeliver_error_type']}")
for each in (connection, watcher):
    each.disconnect(receipt="bye")
