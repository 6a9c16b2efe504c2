# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Starts a server on each kind of database, and one on SQLite for a whole module that only reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redeliver_mw.api import runs
from tests.api.serving import Served, served


@pytest.fixture
def api(url: str) -> Iterator[Served]:
    """Yield a server on each kind of database in turn."""
    with served(url, decoders={"upper": lambda body: body.decode().upper(), "failing": lambda body: 1 / 0}) as one:
        yield one


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a request wait longer for the error of what it has started: a busy machine may need more than a second."""
    monkeypatch.setattr(runs, "FIRST_NEWS", 15.0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a server on SQLite for all tests of a module."""
    with served(f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db") as one:
        yield one
