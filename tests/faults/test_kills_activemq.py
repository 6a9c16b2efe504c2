# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests ActiveMQ: consumer and broker are killed under load.

This test has a file of its own, so that another worker can have it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.faults.killing import lose_nothing


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "kind", "fixture"),
    [
        ("app", "queue", "activemq63"),
        ("drop-in", "queue", "activemq63"),
        ("decorated", "queue", "activemq518"),
    ],
)
def test_nothing_is_lost_when_consumer_and_broker_are_killed_under_load(
    way: str, kind: str, fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    lose_nothing(way, broker, kind, tmp_path / "runs.log")
