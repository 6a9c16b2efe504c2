# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for RabbitMQ through proton keeps the contract on 4.3: with quorum queues, and with classic ones."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from redeliver_mw.testing.contract import AdapterContract, World
from tests.brokers import Broker
from tests.contract.on_brokers import OnBrokers, WithDeclaredQueues
from tests.contract.rabbit_proton_world import SEASON, RabbitProtonWorld
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def proxy(rabbitmq43: Broker) -> Iterator[Proxy]:
    found = Proxy(rabbitmq43.host, rabbitmq43.port, roles=("(publish)", "(consume)"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def seasoned(rabbitmq43: Broker, proxy: Proxy) -> list[str]:
    """Return quorum queues that survive a kill of their broker: new ones come back empty."""
    world = RabbitProtonWorld(rabbitmq43, proxy)
    queues = [world.new_queue() for _ in range(4)]  # two tests take two each
    world.close()
    time.sleep(SEASON)
    return queues


class TestQuorumQueuesOn43(AdapterContract, OnBrokers, WithDeclaredQueues):
    @pytest.fixture
    def world(self, rabbitmq43: Broker, proxy: Proxy, seasoned: list[str]) -> Iterator[World]:
        mine = RabbitProtonWorld(rabbitmq43, proxy, "quorum", seasoned)
        yield mine
        mine.close()


class TestClassicQueuesOn43(AdapterContract, OnBrokers, WithDeclaredQueues):
    further = True

    @pytest.fixture
    def world(self, rabbitmq43: Broker, proxy: Proxy) -> Iterator[World]:
        mine = RabbitProtonWorld(rabbitmq43, proxy, "classic")
        yield mine
        mine.close()
