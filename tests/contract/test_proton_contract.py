# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The adapter for Artemis through proton keeps the contract, on 2.44."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.testing.contract import AdapterContract, World
from tests.brokers import Broker
from tests.contract.on_brokers import OnBrokers, WithDeclaredQueues
from tests.contract.proton_world import ProtonWorld
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def proxy(artemis244: Broker) -> Iterator[Proxy]:
    found = Proxy(artemis244.host, artemis244.port, roles=("(publish)", "(consume)"))
    yield found
    found.close()


class TestOnArtemis244(AdapterContract, OnBrokers, WithDeclaredQueues):
    @pytest.fixture
    def world(self, artemis244: Broker, proxy: Proxy) -> Iterator[World]:
        mine = ProtonWorld(artemis244, proxy)
        yield mine
        mine.close()
