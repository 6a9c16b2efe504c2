# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the transaction {send copies, accept the original}: all or nothing, on the real broker."""

from __future__ import annotations

import time

import pytest

from redeliver_mw.message import Delivery
from redeliver_proton.transactions import PATIENCE
from tests.adapters.proton.probe import Probe, copy_of
from tests.contract.proton_world import REFUSING, ProtonWorld

pytestmark = pytest.mark.broker


def consumed(world: ProtonWorld, probe: Probe, count: int) -> tuple[str, list[Delivery]]:
    """Return a new queue with so many messages, and their deliveries, all of them unsettled."""
    queue = world.new_queue()
    for n in range(count):
        world.send(queue, b"m%d" % n)
    probe.subscribe(queue)
    return queue, probe.take(count)


def in_queue(world: ProtonWorld, queue: str) -> int:
    """Return the number of all messages of a queue, those in flight too."""
    (row,) = world.raw.queues("name", queue)
    return int(row["messageCount"])


def test_a_move_takes_the_original_and_leaves_every_copy(world: ProtonWorld, probe: Probe) -> None:
    queue, (delivery,) = consumed(world, probe, 1)
    left, right = world.new_queue(), world.new_queue()
    assert probe.move(delivery, copy_of(delivery, left), copy_of(delivery, right)) == ("ok", "")
    assert (in_queue(world, queue), world.depth(left), world.depth(right)) == (0, 1, 1)


def test_one_full_target_undoes_the_other_and_the_original_is_still_ours(world: ProtonWorld, probe: Probe) -> None:
    queue, (delivery,) = consumed(world, probe, 1)
    good, full = world.new_queue(), world.new_queue(refusing=True)
    verdict, why = probe.move(delivery, copy_of(delivery, good), copy_of(delivery, full))
    assert (verdict, full in why) == ("refused", True)
    assert (in_queue(world, queue), world.depth(good), world.depth(full)) == (1, 0, 3)
    probe.adapter.settle(((delivery, "accepted"),))
    assert world.wait_until(lambda: in_queue(world, queue) == 0)


def test_a_target_that_is_not_there_is_refused_long_before_patience_ends(world: ProtonWorld, probe: Probe) -> None:
    queue, (delivery,) = consumed(world, probe, 1)
    begun = time.monotonic()
    verdict, why = probe.move(delivery, copy_of(delivery, "is.not.there"))
    assert (verdict, "is.not.there is not there" in why) == ("refused", True)
    assert time.monotonic() - begun < PATIENCE / 2
    assert in_queue(world, queue) == 1
    probe.adapter.settle(((delivery, "accepted"),))
    assert world.wait_until(lambda: in_queue(world, queue) == 0)


def test_a_target_that_fills_up_while_its_link_is_open_aborts_and_loses_nothing(
    world: ProtonWorld, probe: Probe
) -> None:
    queue, deliveries = consumed(world, probe, 5)
    full = f"{REFUSING}.{world.new_name()}"
    world.declare(full)
    verdicts = [probe.move(delivery, copy_of(delivery, full))[0] for delivery in deliveries]
    assert verdicts == ["ok", "ok", "ok", "refused", "refused"]
    assert (in_queue(world, queue), world.depth(full)) == (2, 3)
    probe.adapter.settle([(delivery, "released") for delivery in deliveries[3:]])
    assert [delivery.body for delivery in probe.take(2)] == [b"m3", b"m4"]


def test_many_moves_at_once_all_arrive_once(world: ProtonWorld, probe: Probe) -> None:
    queue, deliveries = consumed(world, probe, 90)
    left, right = world.new_queue(), world.new_queue()
    moves = [(d, copy_of(d, left if n % 2 else right)) for n, d in enumerate(deliveries)]
    assert probe.move_all(moves) == ["ok"] * 90
    assert in_queue(world, queue) == 0
    bodies = [raw.body for raw in world.take_all(left) + world.take_all(right)]
    assert sorted(bodies) == sorted(d.body for d in deliveries)


def test_a_refusing_target_shares_its_transaction_with_nobody(world: ProtonWorld, probe: Probe) -> None:
    queue, deliveries = consumed(world, probe, 20)
    good, full = world.new_queue(), world.new_queue(refusing=True)
    moves = [(d, copy_of(d, full if n == 7 else good)) for n, d in enumerate(deliveries)]
    assert probe.move_all(moves) == ["refused" if n == 7 else "ok" for n in range(20)]
    assert (in_queue(world, queue), world.depth(good)) == (1, 19)


def test_a_copy_that_the_broker_has_already_makes_the_commit_fail_and_goes_the_plain_way(
    world: ProtonWorld, probe: Probe
) -> None:
    queue, (delivery,) = consumed(world, probe, 1)
    dead = world.new_queue()
    out = copy_of(delivery, dead)
    assert probe.publish(out)[0] == "ok"
    verdict, why = probe.move(delivery, out)
    assert (verdict, "uplicate" in why) == ("abandoned", True)
    (again,) = probe.take(1)
    assert (again.body, again.tag == delivery.tag, probe.losses) == (b"m0", False, [])
    same = type(out)(out.target, out.body, out.headers, out.properties, out.copy_id, again)
    assert probe.publish(same)[0] == "ok"  # swallowed: it is there
    probe.adapter.settle(((again, "accepted"),))
    assert world.wait_until(lambda: in_queue(world, queue) == 0)
    assert world.depth(dead) == 1


def test_equal_copy_ids_of_two_messages_are_not_taken_for_one(world: ProtonWorld, probe: Probe) -> None:
    _, (first, second) = consumed(world, probe, 2)
    dead = world.new_queue()
    for delivery in (first, second):
        delivery.known = True
        out = copy_of(delivery, dead)
        same = type(out)(out.target, out.body, out.headers, out.properties, "the-same", delivery)
        assert probe.publish(same)[0] == "ok"
        probe.adapter.settle(((delivery, "accepted"),))
    assert world.depth(dead) == 2


def test_a_cut_in_the_middle_undoes_all_and_loses_nothing(world: ProtonWorld, probe: Probe) -> None:
    _, deliveries = consumed(world, probe, 10)
    dead = world.new_queue()
    world.lose_next_settle()  # here: the first bytes of the transaction
    verdicts = probe.move_all([(d, copy_of(d, dead)) for d in deliveries])
    assert set(verdicts) == {"lost"}
    again = probe.take(10)
    assert sorted(d.body for d in again) == sorted(d.body for d in deliveries)
    assert world.depth(dead) == 0


def test_a_silent_broker_is_cut_off_and_everything_abandoned(world: ProtonWorld, probe: Probe) -> None:
    _, (delivery,) = consumed(world, probe, 1)
    probe.adapter._transaction_runner._patience = 0.5
    world._proxy.stall("up", "(consume)")
    verdict, _ = probe.move(delivery, copy_of(delivery, world.new_queue()))
    assert verdict == "abandoned"
    probe.wait(lambda: probe.losses == [delivery.generation])
    world.unsilence()
    assert [d.body for d in probe.take(1)] == [b"m0"]
