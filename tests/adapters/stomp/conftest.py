# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds two brokers of our own configuration, one for each version, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.stomp_world import ContractBroker, Site, StompWorld, running


@pytest.fixture(scope="session")
def own518() -> Iterator[Site]:
    yield from _site("5.18")


@pytest.fixture(scope="session")
def own63() -> Iterator[Site]:
    yield from _site("6.3")


def _site(version: str) -> Iterator[Site]:
    with running(version) as broker:
        site = Site(broker)
        yield site
        site.close()


@pytest.fixture(params=["own518", "own63"])
def world(request: pytest.FixtureRequest) -> Iterator[StompWorld]:
    """Yield one broker's world: each test runs on both brokers, one after the other."""
    mine = StompWorld(request.getfixturevalue(request.param))
    yield mine
    mine.close()


@pytest.fixture(scope="session")
def unscheduled() -> Iterator[ContractBroker]:
    """Yield a broker whose scheduler is off, as it is by default."""
    with running("6.3", scheduler=False) as broker:
        yield broker
