# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Adds redelivery to a plain pika consumer by changing one line. Needs RabbitMQ; REDELIVER_URL is its address."""

import os

import pika

from redeliver_pika import redelivering

URL = os.environ.get("REDELIVER_URL", "rabbitmq://guest:guest@localhost:5672/")
POLICY = "1:500; 3:move(queue:dlq.$)"  # delay 0.5 s after each failure; dead-lettered after the third
QUEUE, DEAD = "dropin.orders", "dlq.dropin.orders"
seen = []


def on_message(channel, method, properties, body):
    """Handle a message. Unchanged: works, acks, raises."""
    attempt = (properties.headers or {}).get("JMSXDeliveryCount", 1)
    print(f"attempt {attempt} at {body.decode()}", flush=True)
    seen.append(body)
    if body == b"broken order":
        raise ValueError("no such article")
    if body == b"slow order" and attempt < 2:
        raise TimeoutError("the warehouse does not answer")
    channel.basic_ack(method.delivery_tag)


connection = pika.BlockingConnection(pika.URLParameters(URL.replace("rabbitmq", "amqp", 1)))
channel = redelivering(connection.channel(), policy=POLICY)  # this was: channel = connection.channel()
for queue in (QUEUE, DEAD):
    channel.queue_declare(queue, durable=True)
    channel.queue_purge(queue)
for body in (b"good order", b"slow order", b"broken order"):
    channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))

channel.basic_consume(QUEUE, on_message)

letters = connection.channel()
while not (dead := letters.basic_get(DEAD, auto_ack=True))[0]:
    connection.process_data_events(time_limit=0.2)

_, properties, body = dead
print(f"dead letter: {body.decode()}, from {properties.headers['original-destination']}")
print(f"failures: {properties.headers['redeliver_failures']}, {properties.headers['redeliver_error_type']}")
connection.close()
