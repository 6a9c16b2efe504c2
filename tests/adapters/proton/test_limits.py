# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what Artemis and RabbitMQ themselves do with a message that comes back too often.

The management of Artemis tells it.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.message import Destination
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.testing.contract.handlers import fail_first
from redeliver_proton.broker_limits import artemis_limit, rabbit_limit
from tests.adapters.proton.probe import Probe
from tests.contract.proton_world import ProtonWorld


def limit_at(probe: Probe, queue: str) -> BrokerLimit:
    found: BrokerLimit = probe.ask(lambda answer: probe.adapter.limit_at(Destination(queue), answer))
    return found


def last_return(world: ProtonWorld, probe: Probe, queue: str) -> int:
    """Return the number of the counted return that ended the message."""
    probe.subscribe(queue)
    world.send(queue, b"x")
    for number in range(1, 30):
        [delivery] = probe.take(1)
        assert not delivery.redelivered or number > 1
        probe.adapter.settle([(delivery, "returned")])
        until = time.monotonic() + 1.0
        while not probe.deliveries:
            if time.monotonic() > until:
                return number
            time.sleep(0.01)
    raise AssertionError("it has outlived them all")


@pytest.mark.broker
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_message_goes_with_the_return_that_its_address_settings_name(
    world: ProtonWorld, probe: Probe, attempts: int
) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.raw.settings(queue, maxDeliveryAttempts=attempts, deadLetterAddress=dead)
    found = limit_at(probe, queue)
    assert (found.returns, found.dead_letter_to, found.trust) == (attempts, dead, Trust.PROBED)
    assert last_return(world, probe, queue) == attempts
    assert world.depth(dead) == 1


@pytest.mark.broker
def test_a_dead_letter_address_without_a_queue_keeps_nothing(world: ProtonWorld, probe: Probe) -> None:
    queue = world.new_queue()
    world.raw.settings(queue, maxDeliveryAttempts=3, deadLetterAddress=world.new_name())
    assert limit_at(probe, queue) == BrokerLimit(returns=3, spelled="max-delivery-attempts 3")
    world.raw.settings(queue, maxDeliveryAttempts=-1)
    assert limit_at(probe, queue) == BrokerLimit()


@pytest.mark.broker
def test_a_release_is_never_counted_so_the_limit_refuses_no_policy(world: ProtonWorld) -> None:
    queue, dead, target = world.new_queue(), world.new_queue(), world.new_queue()
    world.raw.settings(queue, maxDeliveryAttempts=2, deadLetterAddress=target)
    policy = RedeliveryPolicy(6, 0.05, f"queue:{dead}")
    consumer = world.consume(queue, fail_first(5), policy, delay="nack")
    world.send(queue, b"one", message_id="m1")
    assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
    assert consumer.counts == [1, 2, 3, 4, 5, 6]
    consumer.stop()
    assert world.depth(target) == world.depth(dead) == 0


@pytest.mark.broker
def test_a_limit_that_deletes_is_warned_of_at_start(world: ProtonWorld, caplog: pytest.LogCaptureFixture) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.raw.settings(queue, maxDeliveryAttempts=4, deadLetterAddress="")
    world.consume(queue, fail_first(0), RedeliveryPolicy(3, 0.05, f"queue:{dead}")).stop()
    [said] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert said.startswith(f"queue:{queue}: the broker deletes a message at its 4th counted return")
    assert "max-delivery-attempts 4" in said


# -- without a broker --------------------------------------------------------------------------------------------


def test_artemis_gives_up_at_the_tenth_return_where_nothing_is_set() -> None:
    assert artemis_limit({}, kept=False).returns == 10


@pytest.mark.parametrize(
    ("queue", "limit"),
    [
        ({"type": "classic", "arguments": {"x-delivery-limit": 3}}, BrokerLimit()),
        ({"type": "quorum", "arguments": {"x-delivery-limit": -1}}, BrokerLimit()),
        (
            {"type": "quorum", "arguments": {"x-delivery-limit": 3, "x-consumer-timeout": 6000}},
            BrokerLimit(returns=4, spelled="x-delivery-limit 3", ack_timeout=6.0),
        ),
    ],
)
def test_rabbitmq_over_amqp_tells_a_queues_own_arguments(queue: dict[str, Any], limit: BrokerLimit) -> None:
    assert rabbit_limit(queue) == limit


def test_a_quorum_queue_without_a_limit_of_its_own_is_unknown_over_amqp() -> None:
    assert rabbit_limit({"name": "q", "type": "quorum", "arguments": {}}).trust is Trust.UNKNOWN
