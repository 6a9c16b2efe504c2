# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for RabbitMQ through pika keeps the contract: on 3.10 and 4.3, with classic and quorum queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redeliver_mw.testing.contract import AdapterContract, World

from tests.brokers import Broker
from tests.contract.pika_world import PikaWorld, Pool

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def pool310(rabbitmq310: Broker) -> Iterator[Pool]:
    pool = Pool(rabbitmq310, quorum=2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def pool43(rabbitmq43: Broker) -> Iterator[Pool]:
    pool = Pool(rabbitmq43, quorum=2)
    yield pool
    pool.close()


class TestOnRabbitMQ310(AdapterContract):
    @pytest.fixture
    def world(self, rabbitmq310: Broker, pool310: Pool) -> Iterator[World]:
        mine = PikaWorld(rabbitmq310, pool310)
        yield mine
        mine.close()


class TestOnRabbitMQ43(AdapterContract):
    @pytest.fixture
    def world(self, rabbitmq43: Broker, pool43: Pool) -> Iterator[World]:
        mine = PikaWorld(rabbitmq43, pool43)
        yield mine
        mine.close()
