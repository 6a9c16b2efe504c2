# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests an app that parks, while everything about it is killed or frozen. `chaos` says what may happen then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.faults.chaos import Chaos
from tests.faults.sites import site_of
from tests.storage.postgres import Postgres

SEED, BLOWS = 20260101, 6


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fixture", "kind", "database"),
    [
        ("rabbitmq43", "quorum", "sqlite"),
        ("activemq63", "queue", "postgresql"),
        ("artemis244", "queue", "sqlite"),
    ],
)
def test_nothing_is_lost_when_an_app_that_parks_is_struck_from_all_sides(
    fixture: str, kind: str, database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    only_if(broker.can_restart, "kill")
    server: Postgres | None = request.getfixturevalue("postgres") if database == "postgresql" else None
    report = Chaos(site_of(broker, kind), server, tmp_path, seed=SEED, blows=BLOWS).play()
    print(f"\n{broker.describe()}, limbo on {database}, seed {SEED}: {report}")
    assert report.wrong == []
