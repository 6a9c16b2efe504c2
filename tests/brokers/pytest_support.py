# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds fixtures for tests against real brokers; `tests/conftest.py` imports them.

A broker is started at most once a session, when a test first asks for it. Where it cannot be had the test is
skipped with reason and cure, or fails where REDELIVER_CI is 1. A test may kill or pause it: the broker is put
right again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.brokers import Broker, BrokerFailed, BrokerMissing, broker
from tests.brokers.skips import not_to_be_had

ACTIVEMQ = ("activemq518", "activemq63")
ARTEMIS = ("artemis244",)
RABBITMQ = ("rabbitmq310", "rabbitmq43")
FIXTURES = {*ACTIVEMQ, *ARTEMIS, *RABBITMQ, "activemq", "artemis", "rabbitmq", "jvm_broker", "every_broker"}

_taken: dict[str, str] = {}
_running: list[Broker] = []


@pytest.fixture(scope="session")
def activemq518() -> Iterator[Broker]:
    """Yield ActiveMQ Classic 5.18, up."""
    yield from _session_broker("activemq", "5.18")


@pytest.fixture(scope="session")
def activemq63() -> Iterator[Broker]:
    """Yield ActiveMQ Classic 6.3, up."""
    yield from _session_broker("activemq", "6.3")


@pytest.fixture(scope="session")
def artemis244() -> Iterator[Broker]:
    """Yield Artemis 2.44, up."""
    yield from _session_broker("artemis", "2.44")


@pytest.fixture(scope="session")
def rabbitmq310() -> Iterator[Broker]:
    """Yield RabbitMQ 3.10, up."""
    yield from _session_broker("rabbitmq", "3.10")


@pytest.fixture(scope="session")
def rabbitmq43() -> Iterator[Broker]:
    """Yield RabbitMQ 4.3, up."""
    yield from _session_broker("rabbitmq", "4.3")


@pytest.fixture(scope="session", params=ACTIVEMQ)
def activemq(request: pytest.FixtureRequest) -> Broker:
    """Return both versions of ActiveMQ, one after the other."""
    return _named(request)


@pytest.fixture(scope="session", params=ARTEMIS)
def artemis(request: pytest.FixtureRequest) -> Broker:
    """Return Artemis 2.44 alone: 2.40 answered alike wherever it was tried."""
    return _named(request)


@pytest.fixture(scope="session", params=RABBITMQ)
def rabbitmq(request: pytest.FixtureRequest) -> Broker:
    """Return both versions of RabbitMQ, one after the other."""
    return _named(request)


@pytest.fixture(scope="session", params=[*ACTIVEMQ, *ARTEMIS])
def jvm_broker(request: pytest.FixtureRequest) -> Broker:
    """Return the brokers that run on Java, one after the other."""
    return _named(request)


@pytest.fixture(scope="session", params=[*ACTIVEMQ, *ARTEMIS, *RABBITMQ])
def every_broker(request: pytest.FixtureRequest) -> Broker:
    """Return all brokers, one after the other."""
    return _named(request)


def _named(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def _brokers_put_right() -> Iterator[None]:
    """Revive the brokers: a test that failed between `kill` and `start` must not take the others with it."""
    yield
    for one in _running:
        one.revive()


def _session_broker(kind: str, version: str) -> Iterator[Broker]:
    try:
        found = broker(kind, version=version)
    except BrokerMissing as missing:
        _taken[f"{kind} {version}"] = f"none: {missing.reason}"
        not_to_be_had(missing)
    except BrokerFailed as failed:
        _taken[f"{kind} {version}"] = "would not start"
        pytest.fail(str(failed), pytrace=False)
    _taken[f"{kind} {version}"] = found.describe()
    with found:
        _running.append(found)
        yield found
        _running.remove(found)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the brokers that were taken to the worker that writes to the terminal, as each of several workers does."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["brokers"] = dict(_taken)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for asked, described in getattr(node, "workeroutput", {}).get("brokers", {}).items():
        _taken[f"{asked} ({node.gateway.id})"] = described


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once which broker each test asked for was taken, and how."""
    for asked, described in sorted(_taken.items()):
        terminalreporter.write_line(f"broker for {asked}: {described}")
