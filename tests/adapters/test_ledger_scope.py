# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a ledger is kept for.

That is the same for an App and for the drop-in of the same broker, at each of its addresses.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pika
import proton
import pytest
import stomp
from proton.reactor import Container

from redeliver_mw import App, RedeliveryPolicy
from redeliver_mw.adapter.protocol import Adapter, ledger_scope_of
from redeliver_mw.adapter.registry import adapter_for, parse_url
from redeliver_mw.dropin.companion import NullSink
from redeliver_mw.message import Destination
from redeliver_mw.redelivery.ledger import ledger_of
from redeliver_mw.testing import ManualClock, MemoryAdapter, MemoryBroker
from redeliver_pika.connection import ledger_scope
from redeliver_pika.dropin.copies import SharedConnection
from redeliver_proton.dropin.connection import ProtonUserConnection
from redeliver_proton.rabbitmq import RABBITMQ
from redeliver_stomp.dropin.connection import StompUserConnection
from tests.adapters.pika.dropins import parameters
from tests.brokers import Broker


class Told(NullSink):
    def __init__(self) -> None:
        self.up = threading.Event()

    def connected(self, *_: Any) -> None:
        self.up.set()


def scope_when_connected(url: str) -> tuple[str, str]:
    """Return the ledger scope and the broker of an adapter."""
    adapter, told = adapter_for(parse_url(url)), Told()
    adapter.start(told)
    try:
        assert told.up.wait(20)
        return ledger_scope_of(adapter), adapter.broker
    finally:
        adapter.close()


def pika_connection(host: str, properties: dict[str, Any] | None, vhost: str = "/") -> Any:
    return SimpleNamespace(server_properties=properties, params=pika.ConnectionParameters(host, 5672, vhost))


def test_nodes_of_one_rabbitmq_cluster_share_a_scope_and_virtual_hosts_do_not() -> None:
    told = {"cluster_name": "shop"}
    one = ledger_scope(pika_connection("a", told), "a:5672/")
    assert one == ledger_scope(pika_connection("b", told), "b:5672/")
    assert one != ledger_scope(pika_connection("a", told, "/other"), "a:5672/other")
    assert one != ledger_scope(pika_connection("a", {"cluster_name": "bakery"}), "a:5672/")


@pytest.mark.parametrize("properties", [None, {}, {"cluster_name": ""}])
def test_a_server_without_a_cluster_name_is_known_by_host_and_port(properties: dict[str, Any] | None) -> None:
    assert ledger_scope(pika_connection("a", properties), "a:5672/") == "a:5672/"


def test_before_it_is_connected_the_scope_of_a_rabbitmq_adapter_is_its_broker() -> None:
    for url in ("rabbitmq://a,b/shop", "rabbitmq+proton://a,b/shop"):
        adapter: Any = adapter_for(parse_url(url))
        assert ledger_scope_of(adapter) == "a:5672/shop"
        if hasattr(adapter, "_ioloop"):
            adapter._ioloop.close()  # the wake-up sockets of pika's, which is never started here


def test_rabbitmq_over_amqp_1_0_has_the_scope_of_amqp_0_9_1() -> None:
    url, connection = parse_url("rabbitmq+proton://a/"), pika_connection("b", {"cluster_name": "shop"})
    assert RABBITMQ.ledger_scope(url, "shop") == ledger_scope(connection, "b:5672/")


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("activemq://a", "a:61613"),
        ("activemq://b:1,a", "a:61613,b:1"),
        ("artemis://a", "a:5672"),
        ("artemis://b:1,a", "a:5672,b:1"),
    ],
)
def test_elsewhere_the_scope_is_the_list_of_hosts_in_any_order(url: str, scope: str) -> None:
    adapter = adapter_for(parse_url(url))
    assert ledger_scope_of(adapter) == scope
    assert adapter.broker in ("a:61613", "b:1", "a:5672")


def test_a_stomp_connection_has_the_scope_of_an_adapter_with_its_hosts_wherever_it_is_connected() -> None:
    hosts = [("b.invalid", 1), ("a.invalid", 61613)]
    connection = StompUserConnection(stomp.Connection12(hosts), lambda: None)
    for current in (None, *hosts):
        connection.transport.current_host_and_port = current
        assert connection.ledger_scope == "a.invalid:61613,b.invalid:1"


def test_a_proton_connection_has_the_scope_of_an_adapter_with_its_hosts() -> None:
    container = Container(proton.Handler())
    watch: Any = SimpleNamespace(container=container)
    connection = container.connect(urls=["amqp://b:1", "amqp://a"], reconnect=False)
    user_connection = ProtonUserConnection(watch, connection)
    assert (user_connection.ledger_scope, user_connection.broker) == ("a:5672,b:1", "b:1")
    bare: Any = SimpleNamespace(hostname="somewhere")
    assert ProtonUserConnection(watch, bare).ledger_scope == "somewhere"


class Clustered(MemoryAdapter):
    ledger_scope = "a cluster"


@pytest.mark.parametrize("kind", [MemoryAdapter, Clustered])
def test_an_app_keeps_its_ledgers_for_the_scope_of_its_adapter(kind: type[MemoryAdapter]) -> None:
    clock = ManualClock()
    broker = MemoryBroker("rabbitmq", clock=clock)
    source = Destination(f"orders-{kind.__name__}")
    broker.declare(source)
    app = App("memory://unused")

    @app.handler(source, policy=RedeliveryPolicy(dead_after=3, backoff=5.0))
    def fails(_: Any) -> None:
        raise KeyError("out of stock")

    adapter: Adapter = kind(broker)
    app._start(adapter, clock, drive=clock.run_until_idle)
    broker.send(source, b"1", {}, message_id="1")
    clock.run_until_idle()
    scope = "a cluster" if kind is Clustered else adapter.broker
    assert len(ledger_of(scope, source)) == 1
    app.stop()


@pytest.mark.broker
def test_an_app_and_the_drop_in_have_one_scope_at_each_address_of_a_real_broker(rabbitmq: Broker) -> None:
    scopes, brokers = set(), set()
    for host in ("127.0.0.1", "localhost"):
        url = rabbitmq.url.replace("127.0.0.1", host).replace("localhost", host)
        scope, broker = scope_when_connected(url)
        scopes.add(scope)
        brokers.add(broker)
        given = parameters(rabbitmq)
        given.host = host
        with pika.BlockingConnection(given) as connection:
            shared = SharedConnection.of(connection)
            scopes.add(shared.ledger_scope)
            brokers.add(shared.broker)
    assert (len(scopes), len(brokers)) == (1, 2)


@pytest.mark.broker
def test_both_protocols_of_a_real_rabbitmq_have_one_scope(rabbitmq43: Broker) -> None:
    url = rabbitmq43.url
    assert scope_when_connected(url) == scope_when_connected(url.replace("rabbitmq://", "rabbitmq+proton://"))
