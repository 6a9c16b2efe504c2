# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the user's connection as the drop-in knows it, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import proton
import pytest

from redeliver_mw.adapter.registry import adapter_for
from redeliver_proton.dropin.connection import ConnectionWatch, ProtonUserConnection
from redeliver_proton.dropin.copies import LinkCopyPublisher


def connected_to(*urls: str) -> ProtonUserConnection:
    addresses: Any = SimpleNamespace(values=[proton.Url(url) for url in urls])
    connection: Any = SimpleNamespace(_overrides=SimpleNamespace(address=addresses))
    return ProtonUserConnection(ConnectionWatch(SimpleNamespace()), connection)


@pytest.mark.parametrize("url", ["amqp://broker.example", "amqp://broker.example:5672", "amqp://broker.example:61616"])
def test_a_broker_has_the_same_name_in_a_drop_in_and_in_an_app(url: str) -> None:
    assert connected_to(url).broker == adapter_for(url.replace("amqp", "artemis")).broker


def test_what_comes_of_our_sessions_after_a_loss_is_not_for_the_users_handler() -> None:
    """A reply to a look-up may have been read before the connection was closed, and wait in the driver's queue."""
    connection, collector = proton.Connection(), proton.Collector()
    connection.collect(collector)
    user: Any = SimpleNamespace(connection=connection, is_open=True, cut=lambda _: None, later=lambda *_: None)
    user.call_later = lambda *_: SimpleNamespace(cancel=lambda: None)
    publisher = LinkCopyPublisher(user)
    publisher._up()
    publisher.down(ConnectionError("closed"))
    handlers = []
    while (event := collector.peek()) is not None:
        if getattr(event, "session", None) is not None:
            handlers.append(event.handler)
        collector.pop()
    assert handlers
    assert None not in handlers
