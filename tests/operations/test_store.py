# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests where the store is, who may read it, and what is said of a database that cannot be one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlalchemy import inspect

from redeliver_mw.errors import ConfigError, RedeliverError, StoreError
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.operations import Store, counts, location, page
from redeliver_mw.operations.tables import PARTS, STORE, letters, operation_letters
from tests.disks import fill, small_disk_at
from tests.limbo.messages import limbo, parkings, sql
from tests.operations.taking import ids, put
from tests.pipeline.letters import letter


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- where it is ------------------------------------------------------------------------------------


def test_the_given_url_comes_before_the_variable_and_the_variable_before_the_users_folder(tmp_path: Path) -> None:
    environment = {"REDELIVER_STORE": "postgresql://h/b", "XDG_STATE_HOME": str(tmp_path)}
    assert location("sqlite:///a.db", environment) == "sqlite:///a.db"
    assert location(None, environment) == "postgresql://h/b"
    assert location(None, {"XDG_STATE_HOME": str(tmp_path)}) == f"sqlite:///{tmp_path}/redeliver/store.db"
    assert location(None, {"XDG_STATE_HOME": "not/absolute"}).endswith("/.local/state/redeliver/store.db")


def test_the_users_store_and_its_folder_are_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDELIVER_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Store(location()) as store:
        put(store, letter(b"x", copy_id="c1"))
        folder = tmp_path / "state" / "redeliver"
        assert mode(folder) == 0o700
        assert {file.name: mode(file) for file in folder.iterdir()} == dict.fromkeys(
            ("store.db", "store.db-wal", "store.db-shm"), 384
        )


def test_every_table_with_a_part_of_a_letter_is_emptied_with_the_letter() -> None:
    """An operation's list of letters stays: it says what was done with letters that are gone."""
    known = {table for table in STORE.metadata.tables.values() if "letter_id" in table.columns}
    assert set(PARTS) == known - {operation_letters}
    assert PARTS[-1] is letters


# -- bad input --------------------------------------------------------------------------------------


def refused(url: str, *, create: bool = True) -> RedeliverError:
    with pytest.raises(RedeliverError) as caught, Store(url, create=create):
        pass
    return caught.value


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://h/b", "sqlite+aiosqlite:///x.db", "", "sqlite:///:memory:", "sqlite://"]
)
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Store(url)
    assert caught.value.code == "store-url"
    assert "store.db" in caught.value.cure


def test_looking_makes_no_file(tmp_path: Path) -> None:
    error = refused(f"sqlite:///{tmp_path}/missing.db", create=False)
    assert (type(error), error.code) == (StoreError, "store-file-missing")
    assert "redeliver dead collect" in error.cure
    assert list(tmp_path.iterdir()) == []


def test_a_limbo_is_no_store_for_who_looks(url: str) -> None:
    with limbo(url, ManualClock()):
        pass
    error = refused(url, create=False)
    assert (type(error), error.code, error.what) == (ConfigError, "store-tables", "there is no store in it")


def test_a_store_and_a_limbo_share_a_database(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as other, Store(url) as store:
        put(store, letter(b"x", copy_id="c1"))
        other.park(parkings([1], clock.now().wall - 1))
        assert len(other.due()) == 1
        assert ids(store) == ["c1"]


def test_tables_of_a_newer_release_are_refused_and_left_alone(url: str) -> None:
    with Store(url) as store:
        put(store, letter(b"x", copy_id="c1"))
    sql(url, "UPDATE redeliver_store_version SET version = 99")
    for create in (True, False):
        error = refused(url, create=create)
        assert (error.code, error.what) == (
            "store-tables",
            f"its tables are of version 99, this redeliver-mw knows up to {STORE.version}",
        )
    assert sql(url, "SELECT dl_id FROM redeliver_store_letter") == [("c1",)]


def test_a_table_of_another_program_is_not_taken_over(url: str) -> None:
    sql(url, "CREATE TABLE redeliver_store_letter (id INTEGER)")
    assert refused(url).code == "store-tables"


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no database, but a text that is long enough to be taken for one\n" * 100)
    assert refused(f"sqlite:///{tmp_path}/a.txt").code == "store-url"


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert refused(f"sqlite:///{tmp_path}/no/such/store.db").code == "store-not-writable"


def test_a_full_disk_is_one_clear_error_and_nothing_is_half_stored(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "1m") as disk, Store(f"sqlite:///{disk}/store.db") as store:
        put(store, letter(b"first", copy_id="c1"))
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "ballast")
        with pytest.raises(StoreError) as caught:
            put(store, letter(b"x" * 100_000, copy_id="c2"))
        assert caught.value.code == "store-disk"
        (disk / "ballast").unlink()
        assert ids(store) == ["c1"]
        put(store, letter(b"x" * 100_000, copy_id="c2"))
        assert ids(store) == ["c1", "c2"]


def test_a_file_that_goes_away_is_an_error_until_it_is_put_back(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store(f"sqlite:///{file}") as store:
        put(store, letter(b"x", copy_id="c1"))
        file.rename(tmp_path / "away.db")
        with pytest.raises(StoreError, match="moved or deleted"):
            put(store, letter(b"y", copy_id="c2"))
        (tmp_path / "away.db").rename(file)
        put(store, letter(b"y", copy_id="c2"))
        assert ids(store) == ["c1", "c2"]


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    with pytest.raises(StoreError) as caught:
        page(store)
    assert caught.value.code == "store-closed"


def test_an_empty_store_has_no_letters(store: Store) -> None:
    assert (page(store).letters, page(store).next_cursor, counts(store)) == ([], None, {})


def test_every_name_begins_as_the_store_does(store: Store) -> None:
    with store.reading() as connection:
        looked_at = inspect(connection)
        for table in looked_at.get_table_names():
            assert table.startswith("redeliver_store_")
            assert all(str(index["name"]).startswith("redeliver_store_") for index in looked_at.get_indexes(table))
