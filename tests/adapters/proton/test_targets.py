# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests targets where Artemis takes a message and loses it: they are found before the first copy goes there."""

from __future__ import annotations

import logging

import pytest

from redeliver_mw.message import Destination, Outgoing
from redeliver_proton.brokers.artemis.topology import ArtemisTopology
from redeliver_proton.sender_link import SenderLinks, SentCopy
from tests.adapters.proton.probe import Probe
from tests.contract.proton_world import FULL, REFUSING, ProtonWorld

pytestmark = pytest.mark.broker


def out_to(target: str) -> Outgoing:
    return Outgoing(Destination.parse(target), b"one", {})


def test_a_missing_target_is_refused_or_made_as_a_durable_queue(world: ProtonWorld, probe: Probe) -> None:
    name = world.new_queue(declare=False)
    assert probe.check(name)[0] == "refused"
    assert probe.check(name, declare=True) == ("ok", "")
    (row,) = world.raw.queues("name", name)
    assert (row["routingType"], row["durable"], row["autoDelete"]) == ("ANYCAST", "true", "false")


def test_a_multicast_address_without_a_queue_is_refused(world: ProtonWorld, probe: Probe) -> None:
    name = world.new_name()
    world.raw.ask("broker", "createAddress", name, "MULTICAST")
    for target in (name, f"topic:{name}"):
        assert probe.check(target)[0] == "refused"
        assert probe.publish(out_to(target))[0] == "refused"
    assert probe.check(f"topic:{name}", declare=True)[0] == "refused"  # for whom should a subscription be made?


def test_a_topic_is_no_queue(world: ProtonWorld, probe: Probe) -> None:
    name = world.new_name()
    world.raw.create(f"{name}.audit", name, "MULTICAST")
    verdict, why = probe.check(name, declare=True)
    assert (verdict, f"topic:{name}" in why) == ("refused", True)
    assert probe.check(f"topic:{name}") == ("ok", "")
    assert probe.publish(out_to(f"topic:{name}")) == ("ok", "")
    assert world.depth(f"{name}.audit") == 1


def test_a_dead_letter_queue_that_is_filtered_for_another_address_is_refused(world: ProtonWorld, probe: Probe) -> None:
    name = world.new_name()
    made = {"filter-string": "_AMQ_ORIG_ADDRESS = 'another'", "filter": "_AMQ_ORIG_ADDRESS = 'another'"}
    world.raw.create(f"DLQ.{name}", name, "MULTICAST", **made)
    assert world.raw.queues("address", name)[0]["filter"] == "_AMQ_ORIG_ADDRESS = 'another'"
    verdict, why = probe.check(name, declare=True)
    assert (verdict, f"DLQ.{name}" in why) == ("refused", True)


def test_a_filtered_dead_letter_queue_takes_its_own_by_its_full_name(world: ProtonWorld, probe: Probe) -> None:
    source, name = world.new_queue(), world.new_name()
    mark = {"filter-string": f"_AMQ_ORIG_ADDRESS = '{source}'", "filter": f"_AMQ_ORIG_ADDRESS = '{source}'"}
    world.raw.create(f"DLQ.{name}", name, "MULTICAST", **mark)
    target = f"{name}::DLQ.{name}"
    assert probe.check(target) == ("ok", "")
    world.send(source, b"one")
    probe.subscribe(source)
    (delivery,) = probe.take(1)
    dead = {"redeliver_reason": "exhausted"}
    letter = Outgoing(Destination(target), delivery.body, dead, delivery.properties, "c1", delivery)
    assert probe.publish(letter) == ("ok", "")
    assert world.depth(f"DLQ.{name}") == 1
    retry = Outgoing(Destination(target), delivery.body, {}, delivery.properties, "c2", delivery)
    assert probe.publish(retry)[0] == "refused"  # it carries no mark, and would fall through


def test_an_address_that_drops_when_it_is_full_is_refused(world: ProtonWorld, probe: Probe) -> None:
    name = world.new_queue()
    world.raw.settings(name, maxSizeMessages=3, addressFullMessagePolicy="DROP")
    verdict, why = probe.check(name, declare=True)
    assert (verdict, "DROP" not in why and "address-full-policy" in why) == ("refused", True)
    assert probe.publish(out_to(name))[0] == "refused"


def test_a_full_address_that_fails_refuses_on_an_open_link_and_on_a_new_one(world: ProtonWorld, probe: Probe) -> None:
    name = f"{REFUSING}.{world.new_name()}"
    world.declare(name)
    assert [probe.publish(out_to(name))[0] for _ in range(FULL + 1)] == ["ok"] * FULL + ["refused"]
    with Probe(world.url) as fresh:  # its link gets no credit
        verdict, why = fresh.publish(out_to(name))
    assert (verdict, "full" in why) == ("refused", True)
    world.take_all(name)
    assert probe.publish(out_to(name)) == ("ok", "")


def test_a_full_address_that_blocks_is_waited_for_longer_than_the_patience(
    world: ProtonWorld, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    probe.adapter._publisher._patience = 1.5
    name, answers = world.new_queue(), []
    world.send(name, b"filler")
    world.raw.settings(name, maxSizeMessages=1, addressFullMessagePolicy="BLOCK")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            probe.adapter.publish(out_to(name), lambda verdict, _: answers.append(verdict))
        world.advance(3.0)
        assert answers == []
    assert [name in record.getMessage() for record in caplog.records] == [True]
    world.raw.settings(name, maxSizeMessages=100, addressFullMessagePolicy="BLOCK")
    assert world.wait_until(lambda: answers == ["ok", "ok"]), (answers, caplog.text)


def test_what_waits_for_credit_is_forgotten_with_its_original(world: ProtonWorld, probe: Probe) -> None:
    source, name = world.new_queue(), world.new_queue()
    world.send(name, b"filler")
    world.raw.settings(name, maxSizeMessages=1, addressFullMessagePolicy="BLOCK")
    world.send(source, b"one")
    probe.subscribe(source)
    (delivery,) = probe.take(1)
    answers: list[str] = []
    out = Outgoing(Destination(name), b"one", {}, delivery.properties, "c", delivery)
    probe.adapter.publish(out, lambda verdict, _: answers.append(verdict))
    world.advance(0.3)
    world.delete(source)  # the broker closes the link of the source, and of nothing else
    assert world.wait_until(lambda: answers == ["unsent"])
    world.raw.settings(name, maxSizeMessages=100, addressFullMessagePolicy="BLOCK")
    world.advance(0.3)
    assert world.depth(name) == 1


def test_a_copy_whose_target_cannot_be_looked_up_is_answered_at_once() -> None:
    """It waited for half a minute: the publishing connection was up again before the one that looks targets up."""
    answers: list[tuple[str, str]] = []
    links = SenderLinks(ArtemisTopology())
    for _ in range(2):
        links.to(Destination("orders")).offer(SentCopy(b"", lambda verdict, why: answers.append((verdict, why))))
    assert [verdict for verdict, _ in answers] == ["unsent", "unsent"]
