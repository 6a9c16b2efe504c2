# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a broker of each kind that speaks TLS, and certificates of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerMissing
from tests.brokers.skips import not_to_be_had
from tests.tls.brokers import TlsBroker, open_tls_broker
from tests.tls.certificates import Authority


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all certificates, where the brokers read them."""
    made = tmp_path_factory.mktemp("certificates")
    made.chmod(0o755)
    return made


@pytest.fixture(scope="session")
def authority(folder: Path) -> Authority:
    """Return the authority that gives the brokers' certificates."""
    return Authority(folder)


@pytest.fixture(scope="session")
def stranger(folder: Path) -> Authority:
    """Return an authority that nobody trusts."""
    return Authority(folder, "stranger")


@pytest.fixture(scope="module", params=["rabbitmq", "activemq", "artemis"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> Iterator[TlsBroker]:
    """Yield a broker of each kind, one after the other."""
    try:
        made = open_tls_broker(request.param, authority, authority.give("server"))
    except BrokerMissing as missing:
        not_to_be_had(missing)
    yield made
    made.broker.stop()
