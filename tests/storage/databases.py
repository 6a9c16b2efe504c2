# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Databases for the tests: SQLite files, and a PostgreSQL server that is started once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers._install import BrokerMissing
from tests.brokers.skips import not_to_be_had
from tests.storage.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server, up. Skipped where there is none; a failure where REDELIVER_CI is 1."""
    try:
        server = Postgres()
    except BrokerMissing as missing:
        not_to_be_had(missing)
    yield server
    server.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where an SQLite file may be; it is not there yet."""
    return tmp_path / "limbo.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database, on each kind in turn."""
    if request.param == "sqlite":
        path: Path = request.getfixturevalue("file")
        return f"sqlite:///{path}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()
