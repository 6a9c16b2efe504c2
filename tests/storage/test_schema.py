# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the tables: they are made, upgraded in place, and refused where a newer version was here before."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from redeliver_mw.errors import ConfigError
from redeliver_mw.idempotency import Idempotency
from redeliver_mw.limbo import LimboAdmin, Parking
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.message import Destination
from redeliver_mw.storage.database import Database
from redeliver_mw.storage.schema import LIMBO, VERSION
from redeliver_mw.storage.table_set import prepare
from redeliver_mw.testing import make_delivery
from tests.limbo.messages import limbo, message, parkings, sql

# As Patch Bay's own documentation lists them, in its order.
DOCUMENTED = {
    "dms_limbo": ["limbo_name", "limbo_id"],
    "dms_limbo_msg": [
        "msg_id",
        "limbo_id",
        "delivery_date",
        "delivery_count",
        "msg_src_name",
        "port_name",
        "msg_class",
        "msg_class_type",
        "jms_type",
        "jms_expiration",
        "jms_correlationid",
    ],
    "dms_limbo_replyto": ["msg_id", "jms_replyto"],
    "dms_limbo_body": ["msg_id", "msg_body"],
    "dms_limbo_props": ["msg_id", "prop_name", "prop_value"],
    "dms_limbo_ptypes": ["msg_id", "prop_name", "prop_type"],
    "dms_limbo_delay": [
        "msg_id",
        "delay",
        "max_attempts",
        "failure_port",
        "jms_timestamp",
        "jms_deliverymode",
        "jms_priority",
        "jms_messageid",
        "jms_redelivered",
        "jms_destination",
    ],
}


def test_the_tables_are_the_documented_ones_and_ours_beside_them(url: str) -> None:
    with limbo(url, ManualClock()):
        pass
    database = Database(url)
    database.open()
    with database.reading() as connection:
        looked_at = inspect(connection)
        tables = set(looked_at.get_table_names())
        assert {n: [c["name"] for c in looked_at.get_columns(n)] for n in DOCUMENTED} == DOCUMENTED
        assert all(name.startswith("redeliver_limbo_") for name in tables - DOCUMENTED.keys())
        texts = [c["type"] for c in looked_at.get_columns("dms_limbo_props")[1:]]
        assert [str(one) for one in texts] == ["TEXT", "TEXT"]
        indexes = [index["column_names"][:2] for index in looked_at.get_indexes("dms_limbo_msg")]
        assert ["limbo_id", "delivery_date"] in indexes
    database.close()


def test_what_is_due_is_found_by_the_index_alone(file: Path) -> None:
    with limbo(f"sqlite:///{file}", ManualClock()):
        plan = sql(
            f"sqlite:///{file}",
            "EXPLAIN QUERY PLAN SELECT delivery_date, msg_id FROM dms_limbo_msg WHERE limbo_id = 1"
            " AND delivery_date <= 5 AND delivery_count <= 5 ORDER BY delivery_date LIMIT 5",
        )
    assert len(plan) == 1
    assert "COVERING INDEX dms_limbo_msg_due (limbo_id=? AND delivery_date<?)" in plan[0][3]


def opened(url: str, version: int, upgrades: dict[int, Callable[[Connection], None]]) -> None:
    """Open the database as a redeliver-mw of that version would."""
    database = Database(url)
    try:
        database._engine = database._made()
        database._opened = database._inode()
        with database.writing() as connection:
            prepare(connection, database.where, replace(LIMBO, version=version, upgrades=upgrades))
    finally:
        database.close()


def add_column(name: str) -> Callable[[Connection], None]:
    def step(connection: Connection) -> None:
        connection.execute(text(f"ALTER TABLE redeliver_limbo_msg ADD COLUMN {name} TEXT DEFAULT 'new'"))

    return step


def test_older_tables_are_upgraded_in_place_one_version_after_the_other(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
    upgrades = {VERSION: add_column("first"), VERSION + 1: add_column("second")}
    opened(url, VERSION + 2, upgrades)
    assert sql(url, "SELECT version FROM redeliver_limbo_version") == [(VERSION + 2,)]
    assert sql(url, "SELECT first, second, lineage FROM redeliver_limbo_msg") == [("new", "new", "lineage-1")]
    opened(url, VERSION + 2, {})  # the second time there is nothing to do


def test_tables_of_the_first_version_get_a_ledger_and_keep_what_is_parked(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
    for table in ("ledger", "batch", "run", "handled"):
        sql(url, f"DROP TABLE redeliver_limbo_{table}")
    sql(url, "UPDATE redeliver_limbo_version SET version = 1")
    with limbo(url, clock) as store:
        assert [row.out.body for row in store.due()] == [message(1).body]
    assert sql(url, "SELECT version FROM redeliver_limbo_version") == [(VERSION,)]
    for table in ("ledger", "batch", "run", "handled"):
        assert sql(url, f"SELECT * FROM redeliver_limbo_{table}") == []


def test_tables_of_the_second_version_get_one_for_handled_messages_and_keep_what_is_parked(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
    sql(url, "DROP TABLE redeliver_limbo_handled")
    sql(url, "UPDATE redeliver_limbo_version SET version = 2")
    once = Idempotency(url, clock=clock)
    with once(make_delivery(b"x", message_id="m1")) as fresh:
        assert fresh
    once.close()
    assert sql(url, "SELECT version FROM redeliver_limbo_version") == [(VERSION,)]
    with limbo(url, clock) as store:
        assert [row.out.body for row in store.due()] == [message(1).body]


def test_tables_of_the_third_version_get_one_for_places_and_keep_what_is_parked(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1), clock.now().wall)])
    sql(url, "DROP TABLE redeliver_limbo_place")
    sql(url, "UPDATE redeliver_limbo_version SET version = 3")
    with limbo(url, clock) as store:
        assert store.places(Destination("orders")) == []
        assert [row.out.body for row in store.due()] == [message(1).body]
    assert sql(url, "SELECT version FROM redeliver_limbo_version") == [(VERSION,)]


def test_an_upgrade_that_fails_leaves_all_as_it_was(url: str) -> None:
    with limbo(url, ManualClock()):
        pass

    def fails(connection: Connection) -> None:
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        opened(url, VERSION + 2, {VERSION: add_column("first"), VERSION + 1: fails})
    assert sql(url, "SELECT version FROM redeliver_limbo_version") == [(VERSION,)]
    with limbo(url, ManualClock()) as store:
        store.park(parkings([1], 0.0))


def test_newer_tables_are_refused_and_left_alone(url: str) -> None:
    with limbo(url, ManualClock()):
        pass
    sql(url, "UPDATE redeliver_limbo_version SET version = 99")
    with pytest.raises(
        ConfigError, match=rf"of version 99, this redeliver-mw knows up to {VERSION}\. Upgrade redeliver-mw"
    ) as refused:
        limbo(url, ManualClock()).open()
    assert refused.value.where
    assert sql(url, "SELECT version FROM redeliver_limbo_version") == [(99,)]


def test_patch_bays_own_tables_are_not_ours(url: str) -> None:
    sql(url, "CREATE TABLE dms_limbo_msg (msg_id NUMERIC(19) NOT NULL)")
    with pytest.raises(ConfigError, match="dms_limbo_msg that is not ours"):
        limbo(url, ManualClock()).open()


def test_other_tables_in_the_same_database_do_no_harm(url: str) -> None:
    sql(url, "CREATE TABLE orders (id INTEGER)")
    with limbo(url, ManualClock()) as store:
        store.park(parkings([1], 0.0))
    assert sql(url, "SELECT * FROM orders") == []


def test_looking_makes_no_tables_and_upgrades_none(url: str) -> None:
    sql(url, "CREATE TABLE orders (id INTEGER)")
    with pytest.raises(ConfigError, match="no limbo in it"), LimboAdmin(url):
        pass
    with limbo(url, ManualClock()):
        pass
    sql(url, "UPDATE redeliver_limbo_version SET version = 0")
    with pytest.raises(ConfigError, match="Start the app with this redeliver-mw once"), LimboAdmin(url):
        pass


def test_programs_that_start_at_once_make_the_tables_once(url: str) -> None:
    stores = [limbo(url, ManualClock(), host=f"h{n}", busy_timeout=10.0) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda store: store.open(), stores))
    for store in stores:
        store.close()
    assert len({name for (name,) in sql(url, "SELECT limbo_name FROM dms_limbo")}) == 4
