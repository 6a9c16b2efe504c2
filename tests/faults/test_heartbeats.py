# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests heart-beats of two seconds, with a broker that gives up silent clients.

Slow work and holds cost no connection. ActiveMQ keeps to the heart-beats that a client asks for. Artemis waits for a
minute whatever the client says, unless it is configured not to: the one here gives up after four seconds.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from tests.adapters.proton.dropins import Consumer, drive, unsettled
from tests.brokers import Broker, BrokerMissing, broker
from tests.brokers.skips import not_to_be_had
from tests.faults.load import until
from tests.faults.proxy import Proxy
from tests.faults.sites import site_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HEARTBEAT = 2
WORK = 25.0  # seconds that the handler takes
GIVEN_UP = 12.0  # seconds after which each of these brokers has left a client that went silent


@pytest.fixture(scope="module")
def impatient_artemis() -> Iterator[Broker]:
    """Yield an Artemis that leaves a client that it did not hear for four seconds, and tells clients so."""
    try:
        found = broker("artemis", version="2.44", core="<connection-ttl-override>4000</connection-ttl-override>")
    except BrokerMissing as missing:
        not_to_be_had(missing)
    with found:
        yield found


class Watched(Proxy):
    """Knows its connections."""

    def connections(self) -> frozenset[object]:
        return frozenset(self._pairs)


class Slow:
    """Runs an App with one message, whose handler takes its time; all that the App says goes through a proxy."""

    queue = "slow.beats"

    def __init__(self, broker: Broker) -> None:
        self.site = site_of(broker)
        self.site.prepare(self.queue, ["slow"])
        self.proxy = Watched(broker.host, broker.port)
        self.runs: list[tuple[int, bool]] = []
        self.began, self.ended = threading.Event(), threading.Event()
        url = f"{broker.kind}://{broker.user}:{broker.password}@127.0.0.1:{self.proxy.port}?heartbeat={HEARTBEAT}"
        self.app = App(url, policy=RedeliveryPolicy(dead_after=3, backoff=1))
        self.app.handler(self.queue)(self._handle)

    def _handle(self, delivery: Delivery) -> None:
        self.runs.append((delivery.delivery_count, delivery.redelivered))
        self.began.set()
        time.sleep(WORK)  # the work itself
        self.ended.set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self.app:
            yield
            self.proxy.resume()
        self.proxy.close()


def test_a_handler_of_25_seconds_costs_no_connection(activemq63: Broker, impatient_artemis: Broker) -> None:
    apps = [Slow(activemq63), Slow(impatient_artemis)]
    with apps[0].running(), apps[1].running():
        assert all(app.began.wait(20) for app in apps)
        at_work = [app.proxy.connections() for app in apps]
        assert all(app.ended.wait(WORK + 10) for app in apps)
        until(lambda: all(app.site.count(Slow.queue) == 0 for app in apps), 10, "it was not settled")
        assert [app.proxy.connections() for app in apps] == at_work
        assert [app.runs for app in apps] == [[(1, False)], [(1, False)]]
        assert [app.site.count(f"DLQ.{Slow.queue}") for app in apps] == [0, 0]

        # That says something only if these brokers would have left an App that went silent.
        for app in apps:
            app.proxy.stall("up")
        alive = frozenset().union(*at_work)
        until(lambda: not any(alive & app.proxy.connections() for app in apps), GIVEN_UP, "silence was not noticed")


def test_a_proton_drop_in_that_holds_for_ten_seconds_is_not_left(impatient_artemis: Broker) -> None:
    """For stomp.py there is such a test beside its wrapper: ActiveMQ is always impatient."""
    queue, site = "held.beats", site_of(impatient_artemis)
    site.prepare(queue, ["failing"])

    def fail_once(event: Any) -> None:
        if len(consumer.counts["failing"]) == 1:
            raise ValueError("no")

    consumer = Consumer(impatient_artemis, queue, fail_once, connect={"heartbeat": float(HEARTBEAT)})
    began = time.monotonic()
    policy = RedeliveryPolicy(dead_after=3, backoff=10.0)
    drive(consumer, lambda: consumer.handled == ["failing"] and not unsettled(consumer), policy=policy, delay="hold")
    assert time.monotonic() - began >= 10
    assert (consumer.counts["failing"], consumer.disconnects) == ([1, 2], 0)
    assert (site.count(queue), site.count(f"DLQ.{queue}")) == (0, 0)
