# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the short form of the fuzzer: some fixed seeds on brokers.

`make fuzz-messages` runs the fuzzer for long, on Artemis too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import Broker
from tests.hostile import rounds
from tests.hostile.amqp091 import Pika
from tests.hostile.amqp10 import RabbitProton
from tests.hostile.brokers import carrier_for
from tests.hostile.carrier import Carrier, Limits
from tests.hostile.stomp12 import Stomp

SEEDS = (1, 5)  # an App's round, and a drop-in's
LIMITS = Limits(1 << 17)


@pytest.fixture(scope="module")
def activemq63_counted() -> Iterator[Carrier]:
    with carrier_for("activemq63") as carrier:
        yield carrier


@pytest.fixture(scope="module")
def activemq518_counted() -> Iterator[Carrier]:
    with carrier_for("activemq518") as carrier:
        yield carrier


def _check(carrier: Carrier, seed: int) -> None:
    try:
        done = rounds.run(carrier, seed, LIMITS, messages=20)
    finally:
        carrier.close()
    assert done.faults == []
    assert done.messages >= 5


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_messages_on_rabbitmq_43_harm_nothing(rabbitmq43: Broker, seed: int) -> None:
    _check(Pika(rabbitmq43), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_messages_on_rabbitmq_310_harm_nothing(rabbitmq310: Broker, seed: int) -> None:
    _check(Pika(rabbitmq310), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_messages_over_amqp_10_on_rabbitmq_harm_nothing(rabbitmq43: Broker, seed: int) -> None:
    _check(RabbitProton(rabbitmq43), seed)


@pytest.mark.broker
@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_messages_on_activemq_63_harm_nothing(activemq63_counted: Stomp, seed: int) -> None:
    _check(activemq63_counted, seed)


@pytest.mark.broker
@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_messages_on_activemq_518_harm_nothing(activemq518_counted: Stomp, seed: int) -> None:
    _check(activemq518_counted, seed)
