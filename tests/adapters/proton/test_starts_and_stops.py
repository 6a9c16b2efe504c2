# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a start and a stop of an App leave behind in the process: next to nothing."""

from __future__ import annotations

import gc

from redeliver_mw import App, Delivery, RedeliveryPolicy
from tests.adapters.proton.dropins import Queues
from tests.brokers import Broker

TIMES = 20
EACH = 20  # objects; 242 before the endpoints of the driver were released


def start_and_stop(url: str, queues: Queues) -> None:
    app = App(url, policy=RedeliveryPolicy(2, 0.1, f"queue:{queues.dlq}"))

    @app.handler(queues.name)
    def handle(delivery: Delivery) -> None:
        raise AssertionError("there is no message")

    app.start()
    app.stop(5.0)


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_starts_and_stops_leave_no_connections_behind(artemis244: Broker) -> None:
    queues = Queues(artemis244)
    for _ in range(3):  # what is made once, such as caches
        start_and_stop(artemis244.url, queues)
    before = objects()
    for _ in range(TIMES):
        start_and_stop(artemis244.url, queues)
    assert (objects() - before) / TIMES < EACH
    queues.connection.close()
