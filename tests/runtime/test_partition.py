# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which of several processes consumes what."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import redeliver_pika.capabilities
import redeliver_proton.brokers.artemis.capabilities
import redeliver_proton.brokers.rabbitmq.capabilities
import redeliver_stomp.capabilities
from redeliver_mw import App, Destination, Order, RedeliveryPolicy
from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.errors import ConfigError
from redeliver_mw.memory.personality import PERSONALITIES
from redeliver_mw.runtime.handler import HandlerSpec
from redeliver_mw.runtime.partition import ProcessShare, partition_sources
from redeliver_mw.runtime.settings import Settings


def app_with(url: str = "memory://", ordered: str = "", free: str = "", **more: Any) -> App:
    app = App(url, **more)
    for name in ordered:
        app.handler(name, key=Order("customer"))(print)
    for name in free:
        app.handler(name)(print)
    return app


def shares(of: int, *arguments: Any, **options: Any) -> tuple[list[str], set[int]]:
    """Return the names of each process's sources, and what each process says of the number of processes."""
    apps = [app_with(*arguments, **options) for _ in range(of)]
    said = {app.divide(ProcessShare(index, of)) for index, app in enumerate(apps)}
    return ["".join(sorted(source.name for source in app.sources)) for app in apps], said


def test_a_source_without_order_is_everybodys() -> None:
    assert shares(3, free="xy") == (["xy", "xy", "xy"], {3})


def test_each_ordered_source_is_one_processs_and_they_are_spread_evenly() -> None:
    names, said = shares(3, ordered="abcdefg", free="x")
    assert Counter("".join(names)) == Counter("abcdefg" + 3 * "x")
    assert sorted(map(len, names)) == [3, 3, 4]
    assert said == {3}


def test_the_order_of_registration_does_not_matter() -> None:
    """The order may be that of a set of names, which is another one in each process."""
    for index in range(2):
        one, two = app_with(ordered="abcd"), app_with(ordered="dbca")
        one.divide(ProcessShare(index, 2))
        two.divide(ProcessShare(index, 2))
        assert set(one.sources) == set(two.sources)


def test_with_ordered_sources_alone_there_are_no_more_processes_than_sources() -> None:
    assert shares(4, ordered="ab") == (["a", "b", "", ""], {2})


def test_counts_that_stand_in_one_memory_stay_there() -> None:
    assert shares(2, free="xy", delay="nack") == (["x", "y"], {2})


RECORDS = [
    *redeliver_pika.capabilities.records(),
    *redeliver_proton.brokers.artemis.capabilities.records(),
    *redeliver_proton.brokers.rabbitmq.capabilities.records(),
    *redeliver_stomp.capabilities.records(),
    *(known.capabilities for known in PERSONALITIES.values()),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.dialect} {record.broker_version}".strip())
def test_a_durable_subscription_is_everybodys_but_on_activemq(record: Capabilities) -> None:
    """ActiveMQ refuses a second client with the same id: tests/faults/test_processes.py."""
    source = Destination("prices", "topic", "audit")
    spec = HandlerSpec(source, print, RedeliveryPolicy(), workers=1, prefetch=1)
    divided = [
        partition_sources([spec], ProcessShare(index, 2), Settings(app_name="shop"), record) for index in range(2)
    ]
    if record.broker_kind == "activemq":
        assert divided == [({source}, 1), (set(), 1)]
    else:
        assert divided == [({source}, 2), ({source}, 2)]


def test_a_circle_of_dead_letters_over_two_processes_is_refused_in_each() -> None:
    for index in range(2):
        app = App("memory://")
        app.handler("orders", key="customer")(print)
        app.handler("DLQ.orders", key="customer")(print)
        with pytest.raises(ConfigError, match="same policy"):
            app.divide(ProcessShare(index, 2))
