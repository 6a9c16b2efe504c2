# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a silent peer, heart-beats, wrong options, another broker: all is said at the start, and bounded in time."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from proton.reactor import Container

from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import BrokerUnavailable, ConfigError, CredentialsRefused
from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.session import connect
from redeliver_proton import ProtonAdapter, connection
from tests.adapters.proton.dropins import NamelessPeer
from tests.adapters.proton.probe import Probe
from tests.brokers import Broker
from tests.contract.proton_world import ProtonWorld

broker = pytest.mark.broker


@pytest.fixture
def quiet_port() -> object:
    """Yield the port of a peer that accepts connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_peer_that_never_speaks_hangs_neither_start_nor_stop(
    quiet_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_TIMEOUT", 0.2)
    begun = time.monotonic()
    with Probe(f"artemis://u:p@127.0.0.1:{quiet_port}") as probe:
        assert [type(failure) for failure in probe.failures] == [BrokerUnavailable]
        assert "no AMQP" in str(probe.failures[0])
    assert time.monotonic() - begun < 8.0


def test_a_stop_does_not_wait_for_a_handshake(quiet_port: int) -> None:
    probe = Probe(f"artemis://u:p@127.0.0.1:{quiet_port}")
    probe.adapter.start(probe)
    begun = time.monotonic()
    probe.adapter.close(5.0)
    assert time.monotonic() - begun < 3.0
    assert not probe.adapter._loop.thread.is_alive()


@pytest.mark.parametrize("scheme", ["artemis", "rabbitmq+proton"])
def test_a_peer_that_does_not_name_its_product_is_refused_with_the_cure(scheme: str) -> None:
    peer = NamelessPeer()
    listening = threading.Thread(target=Container(peer).run, daemon=True)
    listening.start()
    assert peer.listening.wait(5)
    with Probe(f"{scheme}://127.0.0.1:{peer.port}") as probe:
        (failure,) = probe.failures
        assert isinstance(failure, ConfigError)
        assert "does not name its product" in str(failure)
        assert failure.cure
    listening.join(5)
    assert not listening.is_alive()


@pytest.mark.parametrize("options", ["heartbeat=soon", "heartbeet=3", "tls=perhaps", "tls=1&ca=/nowhere/ca.pem"])
def test_options_that_mean_nothing_are_refused(options: str) -> None:
    with pytest.raises(ConfigError):
        ProtonAdapter(parse_url(f"artemis://127.0.0.1?{options}"))


def test_tls_is_asked_for_and_a_plain_peer_is_no_broker(quiet_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_TIMEOUT", 0.2)
    with Probe(f"artemis://u:p@127.0.0.1:{quiet_port}?tls=1&verify=0") as probe:
        assert [type(failure) for failure in probe.failures] == [BrokerUnavailable]


@broker
def test_nobody_is_let_in_without_a_name(artemis244: Broker) -> None:
    with pytest.raises(CredentialsRefused):
        connect(f"artemis://{artemis244.host}:{artemis244.port}")


@broker
def test_a_broker_that_is_none_of_ours_is_named(rabbitmq43: Broker) -> None:
    with pytest.raises((ConfigError, BrokerUnavailable)):
        connect(f"artemis://{rabbitmq43.user}:{rabbitmq43.password}@{rabbitmq43.host}:{rabbitmq43.port}")


@broker
def test_a_broker_that_falls_silent_is_left_after_two_heart_beats_and_found_again(
    world: ProtonWorld, artemis244: Broker
) -> None:
    queue = world.new_queue()
    with Probe(f"{world.url}?heartbeat=1") as probe:
        probe.subscribe(queue)
        world._proxy.stall("down")
        probe.wait(lambda: len(probe.losses) == 1, 8.0)
        world.unsilence()
        probe.wait(lambda: len(probe.ready_sources) == 2)
        world.send(queue, b"one")
        assert [delivery.body for delivery in probe.take(1)] == [b"one"]


@broker
def test_an_idle_connection_stays(world: ProtonWorld) -> None:
    queue = world.new_queue()
    with Probe(f"{world.url}?heartbeat=1") as probe:
        probe.subscribe(queue)
        world.advance(5.0)
        assert (probe.losses, probe.connections) == ([], 1)


@broker
def test_a_publish_that_is_never_answered_closes_its_connection_before_it_is_reported(world: ProtonWorld) -> None:
    queue = world.new_queue()
    with Probe(world.url) as probe:
        out = Outgoing(Destination(queue), b"one", {}, copy_id="one")
        assert probe.publish(out) == ("ok", "")
        probe.adapter._publisher._patience = 0.5  # only now: a busy broker may take longer for the first one
        world.silence()
        verdict, why = probe.publish(Outgoing(Destination(queue), b"two", {}, copy_id="two"))
        assert (verdict, "0.5 s" in why) == ("silent", True)
        world.unsilence()
        world.advance(0.5)
        assert [raw.body for raw in world.take_all(queue)] == [b"one"]
