# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a real Artemis behind a proxy, and an adapter that is connected to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.proton.probe import Probe
from tests.brokers import Broker
from tests.contract.proton_world import ProtonWorld
from tests.faults.proxy import Proxy


@pytest.fixture(scope="module")
def proxy(artemis244: Broker) -> Iterator[Proxy]:
    found = Proxy(artemis244.host, artemis244.port, roles=("(publish)", "(consume)"))
    yield found
    found.close()


@pytest.fixture
def world(artemis244: Broker, proxy: Proxy) -> Iterator[ProtonWorld]:
    mine = ProtonWorld(artemis244, proxy)
    yield mine
    mine.close()


@pytest.fixture
def probe(world: ProtonWorld) -> Iterator[Probe]:
    with Probe(world.url) as mine:
        yield mine
