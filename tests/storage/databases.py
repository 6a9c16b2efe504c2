# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes databases for the tests: SQLite files, and a PostgreSQL server that is started once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers._install import BrokerMissing
from tests.brokers.skips import not_to_be_had
from tests.storage.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Yield a server that is up. Without one, the tests are skipped, or fail where REDELIVER_CI is 1."""
    try:
        server = Postgres()
    except BrokerMissing as missing:
        not_to_be_had(missing)
    yield server
    server.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a path for an SQLite file that is not there yet."""
    return tmp_path / "limbo.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database, on each kind in turn."""
    if request.param == "sqlite":
        path: Path = request.getfixturevalue("file")
        return f"sqlite:///{path}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()
