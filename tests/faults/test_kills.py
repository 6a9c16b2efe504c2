# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests RabbitMQ: consumer and broker are killed under load.

`killing` says what may happen then, and what may not.
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
        ("app", "classic", "rabbitmq310"),
        ("app", "quorum", "rabbitmq43"),
        ("drop-in", "quorum", "rabbitmq310"),
        ("decorated", "classic", "rabbitmq43"),
    ],
)
def test_nothing_is_lost_when_consumer_and_broker_are_killed_under_load(
    way: str, kind: str, fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    lose_nothing(way, broker, kind, tmp_path / "runs.log")
