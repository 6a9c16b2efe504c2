# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a message that cannot be copied exactly, in an App that has a limbo: on every broker, and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.limbo import LimboAdmin
from redeliver_mw.message import Delivery
from redeliver_mw.testing.contract import World
from redeliver_mw.testing.contract.case import Case
from redeliver_mw.testing.contract.copying import filling
from redeliver_mw.testing.contract.handlers import Trouble

BODY = bytes(range(256)) * 4
HEALTHY = [b"healthy %d" % n for n in range(20)]


class Uncopyable(Case):
    """Tests such messages with a limbo; `Copying` of the contract tests them without one."""

    @pytest.mark.parametrize("delay", ["auto", "park"])
    def test_a_dead_letter_that_cannot_be_copied_is_kept_in_the_limbo_and_goes_back_when_it_is_released(
        self, world: World, tmp_path: Path, delay: str
    ) -> None:
        queue, dead, url = world.new_queue(), world.new_queue(), f"sqlite:///{tmp_path}/limbo.db"
        mended = False

        def act(delivery: Delivery) -> None:
            if delivery.body == BODY and not mended:
                raise Trouble("it never works")

        policy = self.policy(world, dead, 3)
        consumer = world.consume(queue, act, policy, records=True, limbo=url, delay=delay)
        world.send(queue, BODY, filling(world, 200))
        assert world.wait_until(lambda: len(consumer.handler.of(BODY)) >= 1)
        for body in HEALTHY:
            world.send(queue, body)
        assert world.wait_until(lambda: set(HEALTHY) <= set(consumer.bodies))
        assert world.wait_until(lambda: counts(url)["dead letter"] == 1)
        assert world.wait_until(lambda: world.depth(queue) == 0 and consumer.uncopyable == 0)
        assert [run.count for run in consumer.handler.of(BODY)] == [1, 2, 3]
        assert (consumer.paused, world.depth(dead)) == (None, 0)
        assert world.wait_until(lambda: len(ends(consumer.records)) == 1)
        (end,) = ends(consumer.records)
        assert (end.reason, end.delivery_count, end.targets) == ("exhausted", 3, None)

        (run, *_) = consumer.handler.of(BODY)
        with LimboAdmin(url) as limbo:
            (letter,), (told,) = limbo.show(), limbo.listed()
            assert letter.out.body == BODY
            assert theirs(letter.out.headers) == theirs(run.delivery.headers)
            assert letter.out.headers["redeliver_failures"] == "3"
            assert (told.state, told.reason, told.failures) == ("dead letter", "exhausted", 3)
            assert (told.to, told.source, "bytes" in told.last_error) == (f"queue:{queue}", f"queue:{queue}", True)

            mended = True
            assert limbo.release() == 0, "only what is named runs again"
            assert limbo.release(id_=str(letter.id)) == 1
        assert consumer.app._engine is not None
        consumer.app._engine.look_at_limbo()
        assert world.wait_until(lambda: len(consumer.handler.of(BODY)) == 4)
        again = consumer.handler.of(BODY)[-1]
        assert (again.count, theirs(again.delivery.headers)) == (1, theirs(run.delivery.headers))
        assert world.wait_until(lambda: sum(counts(url).values()) == 0 and world.depth(queue) == 0)


def counts(url: str) -> dict[str, int]:
    with LimboAdmin(url) as limbo:
        return limbo.counts()


def theirs(headers: Any) -> dict[str, Any]:
    """Return the producer's own headers: neither ours, nor what a broker writes on a message that it delivers."""
    return {name: value for name, value in headers.items() if name.startswith("filling")}


def ends(records: Any) -> list[Any]:
    return [record for record in records if record.outcome == "dead_lettered"]
