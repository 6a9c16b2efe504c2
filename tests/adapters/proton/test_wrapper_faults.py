# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests connections that are cut under a drop-in: what the drop-in counted stays counted, and nothing is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy
from redeliver_proton import transaction_coordinator
from redeliver_proton.dropin import copies
from tests.adapters.proton.dropins import Consumer, Queues, drive, unsettled
from tests.brokers import Broker
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker


def through(broker: Broker, proxy: Proxy) -> Any:
    return SimpleNamespace(host="127.0.0.1", port=proxy.port, user=broker.user, password=broker.password)


def test_counts_survive_a_cut_while_the_message_is_held(artemis244: Broker, proxy: Proxy) -> None:
    q = Queues(artemis244)

    def act(event: Any) -> None:
        runs = len(consumer.counts["one"])
        if runs in (1, 2):
            event.container.schedule(0.1, SimpleNamespace(on_timer_task=lambda _: proxy.cut()))
        if runs < 4:
            raise ValueError("no")

    consumer = Consumer(through(artemis244, proxy), q.name, act)
    q.put("one")
    policy = RedeliveryPolicy(dead_after=9, backoff=0.5)
    drive(consumer, lambda: consumer.handled == ["one"] and not unsettled(consumer), policy=policy, delay="hold")
    assert consumer.counts["one"] == [1, 2, 3, 4]
    assert consumer.disconnects >= 2
    assert (q.left(), q.dead()) == ([], [])


def test_copies_go_on_after_a_cut(artemis244: Broker, proxy: Proxy) -> None:
    """The links of ours are opened anew; three messages are dead-lettered before the cut and three after it."""
    q = Queues(artemis244)

    def act(event: Any) -> None:
        raise ValueError("no")

    consumer = Consumer(through(artemis244, proxy), q.name, act)
    q.put("1", "2", "3")
    cut: list[int] = []

    def done() -> bool:
        if not cut and len(consumer.counts) == 3 and not unsettled(consumer):
            cut.append(1)
            proxy.cut()
            q.put("4", "5", "6")
        return len(consumer.counts) == 6 and not unsettled(consumer)

    drive(consumer, done, policy=RedeliveryPolicy(dead_after=1))
    assert sorted(m.body for m in q.dead()) == ["1", "2", "3", "4", "5", "6"]
    assert q.left() == []


def test_a_cut_between_the_copy_and_the_commit_leaves_no_copy(
    artemis244: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copy and settle are one transaction in a drop-in, too: the broker has said yes to the copy by then."""
    q = Queues(artemis244)
    commit, seen = transaction_coordinator.TransactionCoordinator.discharge, []

    def cut_before_the_first(self: Any, number: bytes, *, failed: bool) -> None:
        if seen:
            return commit(self, number, failed=failed)
        seen.append((failed, q.depth(q.dlq)))
        proxy.cut()

    def act(event: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr(transaction_coordinator.TransactionCoordinator, "discharge", cut_before_the_first)
    consumer = Consumer(through(artemis244, proxy), q.name, act)
    q.put("one")
    drive(consumer, lambda: bool(q.depth(q.dlq)) and not unsettled(consumer), policy=RedeliveryPolicy(dead_after=1))
    assert seen == [(False, 0)]
    assert (len(q.dead()), q.left(), consumer.counts["one"]) == (1, [], [1])


def test_silence_closes_the_connection_before_it_is_reported(
    artemis244: Broker, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies.LinkCopyPublisher.__init__, "__kwdefaults__", {"patience": 1.0})
    q = Queues(artemis244)

    def act(event: Any) -> None:
        if event.message.body == "one":
            proxy.stall("down")
            event.container.schedule(0.1, SimpleNamespace(on_timer_task=resume_once_closed))
        raise ValueError("no")

    def resume_once_closed(event: Any) -> None:
        if consumer.disconnects:
            proxy.resume()
        else:
            event.container.schedule(0.1, SimpleNamespace(on_timer_task=resume_once_closed))

    def done() -> bool:
        if "one" not in consumer.counts and "first" in consumer.counts and not unsettled(consumer):
            q.put("one") if not put else None
            put.append(1)
        return consumer.disconnects > 0 and not unsettled(consumer) and q.depth(q.dlq) >= 2

    put: list[int] = []
    consumer = Consumer(through(artemis244, proxy), q.name, act)
    q.put("first")
    drive(consumer, done, policy=RedeliveryPolicy(dead_after=1))
    assert dict(consumer.counts) == {"first": [1], "one": [1]}
    assert sorted({m.body for m in q.dead()}) == ["first", "one"]
    assert q.left() == []
