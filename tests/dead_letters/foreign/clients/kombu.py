# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Rejects a message with a consumer of kombu."""

from __future__ import annotations

import sys

from kombu import Connection, Exchange, Queue

url, source, dead = sys.argv[1:4]

arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
queue = Queue(source, Exchange(source), routing_key=source, durable=True, queue_arguments=arguments)
with Connection(url) as connection, connection.SimpleQueue(queue) as orders:
    orders.put({"order": 7})
    orders.get(timeout=10).reject()
