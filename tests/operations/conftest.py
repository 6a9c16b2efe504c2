# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Opens a store on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redeliver_mw.operations import Store


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Yield an empty store, open, on each kind of database in turn."""
    with Store(url) as made:
        yield made


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[Store]:
    """Yield an empty store in an SQLite file."""
    with Store(f"sqlite:///{tmp_path}/store.db") as made:
        yield made
