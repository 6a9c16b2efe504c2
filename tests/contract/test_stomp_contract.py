# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for ActiveMQ through stomp.py keeps the contract: on 5.18 and 6.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.testing.contract import AdapterContract, World
from tests.contract.on_brokers import OnBrokers
from tests.contract.stomp_world import Site, StompWorld, running

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def site518() -> Iterator[Site]:
    with running("5.18") as broker:
        site = Site(broker)
        yield site
        site.close()


@pytest.fixture(scope="module")
def site63() -> Iterator[Site]:
    with running("6.3") as broker:
        site = Site(broker)
        yield site
        site.close()


class TestOnActiveMQ518(AdapterContract, OnBrokers):
    further = True

    @pytest.fixture
    def world(self, site518: Site) -> Iterator[World]:
        mine = StompWorld(site518)
        yield mine
        mine.close()


class TestOnActiveMQ63(AdapterContract, OnBrokers):
    @pytest.fixture
    def world(self, site63: Site) -> Iterator[World]:
        mine = StompWorld(site63)
        yield mine
        mine.close()
