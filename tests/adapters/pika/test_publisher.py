# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which copy an answer on the publishing link is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.testing.contract.handlers import Handler
from tests.brokers import Broker
from tests.contract.pika_world import PikaWorld, Pool


@pytest.fixture(params=["310", "43"])
def world(request: pytest.FixtureRequest) -> Iterator[PikaWorld]:
    broker: Broker = request.getfixturevalue(f"rabbitmq{request.param}")
    pool = Pool(broker, quorum=0)
    found = PikaWorld(broker, pool)
    yield found
    found.close()
    pool.close()


@pytest.mark.broker
def test_of_two_copies_for_a_queue_only_the_one_that_came_before_it_was_made_is_refused(world: PikaWorld) -> None:
    """RabbitMQ 4.3.6 gives a message back with its headers in another order."""
    app = world.app()
    app.handler(world.new_queue())(Handler(world.now))
    world.started(app)
    assert app._engine is not None
    adapter, target = app._engine.adapter, world.new_queue(declare=False)
    adapter._publisher._patience = 30.0
    answers: dict[str, str] = {}

    def publish(copy_id: str) -> None:
        out = Outgoing(
            Destination(target), b"the same", {"z": 1, "a": 2, "redeliver_copy_id": copy_id}, copy_id=copy_id
        )
        adapter.publish(out, lambda verdict, why: answers.setdefault(copy_id, verdict))

    world._proxy.stall("down", "(publish)")
    publish("before")
    world.advance(0.5)  # it is at the broker, which gives it back
    world.declare(target)
    publish("after")
    assert world.wait_until(lambda: world.depth(target) == 1)
    assert answers == {}
    world._proxy.resume()
    assert world.wait_until(lambda: len(answers) == 2)
    assert answers == {"before": "refused", "after": "ok"}
