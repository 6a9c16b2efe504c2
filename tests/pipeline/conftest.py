# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides Spark for the tests of the pipeline: one local session, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.pipeline import Lake, session
from tests.brokers._install import only_one
from tests.storage.databases import postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["postgres"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that asks for Spark with `spark`."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session on two cores of this machine.

    The session's plans are interpreted, because compiling each of them takes a third of the time of tests with few
    rows. Tests that start a process of their own, as the quarter and the start's last page do, have Spark as it comes.
    """
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    started = session("local[2]", interpreted)
    yield started
    started.stop()


@pytest.fixture
def connect_port() -> Iterator[int]:
    """Yield the port that `local-connect` needs, which no test of another process has in the meantime.

    PySpark's client of a server in its own process knows only this one; see SparkSession.Builder.getOrCreate.
    """
    with only_one("spark-connect-port"):
        yield 15002


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake with nothing in it."""
    return Lake(tmp_path / "lake", create=True)
