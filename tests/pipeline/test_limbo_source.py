# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests parked messages as a table of Spark's, from SQLite and PostgreSQL, beside what SQL says of the database."""

from __future__ import annotations

import operator
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, IsNull, Not, StringStartsWith
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from redeliver_mw.errors import ConfigError, LimboError
from redeliver_mw.limbo import Parking
from redeliver_mw.limbo import scan as limbo_scan
from redeliver_mw.limbo.scan import Scan, ScanCondition
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.message import Destination
from redeliver_mw.pipeline.limbo_source import LimboPartition, LimboReader, LimboSource
from tests.limbo.messages import limbo, message, parkings, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSH = "spark.sql.python.filterPushdown.enabled"
COUNT = 250


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a limbo with 250 messages, every fifth of them given up, every seventh for another queue."""
    place = f"sqlite:///{tmp_path}/limbo.db"
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres").new_database()
    clock = ManualClock()
    with limbo(place, clock) as store:
        store.park(parkings((n for n in range(COUNT) if n % 7), clock.now().wall + 60))
        others = [message(n, target=Destination("other")) for n in range(0, COUNT, 7)]
        store.park([Parking(out, clock.now().wall) for out in others])
    sql(place, "UPDATE dms_limbo_msg SET delivery_count = 85 WHERE msg_id / 5 * 5 = msg_id")
    sql(
        place,
        "UPDATE redeliver_limbo_msg SET last_error = 'refused: password=hunter2 is wrong' "
        "WHERE msg_id / 5 * 5 = msg_id",
    )
    return place


def source(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("redeliver_limbo").options(url=url, **options).load()


@contextmanager
def pushing(spark: SparkSession, on: bool) -> Iterator[None]:
    before = str(spark.conf.get(PUSH))
    spark.conf.set(PUSH, str(on).lower())
    try:
        yield
    finally:
        spark.conf.set(PUSH, before)


def schema_of(ddl: str) -> StructType:
    kinds = {
        "BIGINT": LongType(),
        "STRING": StringType(),
        "BOOLEAN": BooleanType(),
        "BINARY": BinaryType(),
        "INT": IntegerType(),
    }
    columns = (column.split() for column in ddl.split(", "))
    return StructType([StructField(name, kinds[kind]) for name, kind in columns])


def planned(options: dict[str, str]) -> object:
    """Ask for all that Spark asks for until it knows which pieces there are, and return the pieces."""
    given = LimboSource(options)
    return given.reader(schema_of(given.schema())).partitions()


def test_it_is_there_without_being_registered_and_says_what_sql_says(spark: SparkSession, url: str) -> None:
    rows = {row["id"]: row for row in source(spark, url).collect()}
    told = sql(
        url,
        "SELECT m.msg_id, port_name, delivery_date, delivery_count, copy_id, lineage, source, body_bytes, parked_us "
        "FROM dms_limbo_msg m JOIN redeliver_limbo_msg USING (msg_id)",
    )
    assert len(told) == COUNT
    seen = [
        (
            id_,
            row["target"],
            row["due_us"] // 1000,
            row["delivery_count"],
            row["copy_id"],
            row["message_key"],
            row["source"],
            row["body_bytes"],
            row["parked_us"],
        )
        for id_, row in rows.items()
    ]
    assert sorted(seen) == sorted(told)
    assert {row["given_up"] for row in rows.values() if row["id"] % 5 == 0} == {True}
    assert {row["given_up"] for row in rows.values() if row["id"] % 5} == {False}
    assert {(row["app"], row["broker"], row["failures"], row["generation"]) for row in rows.values()} == {
        ("shop", "mq:5672", 3, 1)
    }


def test_bodies_come_when_they_are_asked_for_and_secrets_never(spark: SparkSession, url: str) -> None:
    assert "body" not in source(spark, url).columns
    rows = source(spark, url, body="true").where("target = 'queue:orders'").collect()
    assert {bytes(row["body"]) for row in rows} == {b"order %d" % n for n in range(COUNT) if n % 7}
    errors = {row["last_error"] for row in rows}
    assert None in errors
    assert not any("hunter2" in error for error in errors if error)


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("given_up", lambda row: row["given_up"]),
        ("NOT given_up", lambda row: not row["given_up"]),
        ("target = 'queue:other' AND id > 20", lambda row: row["target"] == "queue:other" and row["id"] > 20),
        ("target IN ('queue:other', 'none') OR id = 3", lambda row: row["target"] == "queue:other" or row["id"] == 3),
        ("target NOT IN ('queue:other')", lambda row: row["target"] != "queue:other"),
        ("last_error IS NULL AND id <= 100", lambda row: row["last_error"] is None and row["id"] <= 100),
        ("last_error LIKE 'REFUSED%'", lambda row: False),
        ("last_error LIKE 'refused%'", lambda row: row["last_error"] is not None),
        ("delivery_count BETWEEN 2 AND 90", lambda row: 2 <= row["delivery_count"] <= 90),
        ("reason = '' OR reason IS NULL", lambda row: True),
        ("copy_id > 'copy-20' AND copy_id < 'copy-3'", lambda row: "copy-20" < row["copy_id"] < "copy-3"),
    ],
)
def test_a_condition_means_the_same_whether_it_is_handed_on_or_not(
    spark: SparkSession, url: str, where: str, holds: Callable[[Any], bool]
) -> None:
    everything = source(spark, url).collect()
    expected = {row["id"] for row in everything if holds(row)}
    for on in (False, True):
        with pushing(spark, on):
            assert {row["id"] for row in source(spark, url).where(where).collect()} == expected, on


def test_what_the_database_cannot_tell_as_spark_does_is_left_to_spark() -> None:
    schema = schema_of("id BIGINT, target STRING, given_up BOOLEAN, last_error STRING")
    reader = LimboSource({"url": "sqlite:///limbo.db"}).reader(schema)
    pushed: list[Filter] = [
        EqualTo(("id",), 3),
        In(("target",), ("a", "b")),
        Not(EqualTo(("given_up",), True)),
        IsNull(("last_error",)),
        IsNotNull(("target",)),
        GreaterThan(("id",), 1),
    ]
    left: list[Filter] = [
        GreaterThan(("target",), "a"),
        StringStartsWith(("target",), "a"),
        EqualTo(("target",), "a\0b"),
        EqualTo(("missing",), 1),
        Not(StringStartsWith(("target",), "a")),
        In(("id",), (1, None)),
        In(("id",), ()),
    ]
    assert list(reader.pushFilters([*pushed, *left])) == left
    assert pickle.loads(pickle.dumps(reader))._tests == [
        ScanCondition("id", "=", 3),
        ScanCondition("target", "in", ("a", "b")),
        ScanCondition("given_up", "=", 1, True),
        ScanCondition("last_error", "null"),
        ScanCondition("target", "null", None, True),
        ScanCondition("id", ">", 1),
    ]


def test_pieces_by_id_hold_each_message_once(url: str) -> None:
    reader = LimboReader(url, {"id": "BIGINT"}, 4)
    pieces = reader.partitions()
    assert len(pieces) == 4
    found = [[id_ for batch in reader.read(piece) for id_ in batch.column(0).to_pylist()] for piece in pieces]
    assert all(40 <= len(ids) <= 80 for ids in found)  # 62 or 63 each
    assert sorted(id_ for ids in found for id_ in ids) == sorted(
        id_ for (id_,) in sql(url, "SELECT msg_id FROM dms_limbo_msg")
    )


def test_a_schema_with_fewer_columns_reads_fewer_and_one_with_others_is_refused(spark: SparkSession, url: str) -> None:
    given = spark.read.format("redeliver_limbo").option("url", url).schema("copy_id STRING, id BIGINT").load()
    assert given.columns == ["copy_id", "id"]
    assert given.agg(sf.count("*"), sf.countDistinct("copy_id")).collect() == [(COUNT, COUNT)]
    with pytest.raises(ConfigError, match=r"there is no column id STRING.*There are id BIGINT, target STRING"):
        LimboSource({"url": url}).reader(schema_of("id STRING"))


def test_an_empty_limbo_is_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/limbo.db"
    limbo(place, ManualClock()).open().close()
    assert source(spark, place).collect() == []


def test_dates_beyond_microseconds_and_values_that_were_changed_by_hand(url: str) -> None:
    late, early = (id_ for (id_,) in sql(url, "SELECT msg_id FROM dms_limbo_msg LIMIT 2"))
    sql(url, f"UPDATE dms_limbo_msg SET delivery_date = {2**63 - 1} WHERE msg_id = {late}")
    sql(url, f"UPDATE dms_limbo_msg SET delivery_date = {-(2**63) + 1} WHERE msg_id = {early}")
    reader = LimboReader(url, {"id": "BIGINT", "due_us": "BIGINT"}, None)
    table = pa.Table.from_batches([batch for piece in reader.partitions() for batch in reader.read(piece)])
    due = dict(zip(table["id"].to_pylist(), table["due_us"].to_pylist(), strict=True))
    assert due[late] > 9_223_372_036_000_000_000 > 0 > -9_223_372_036_000_000_000 > due[early]


def test_a_number_that_somebody_replaced_by_a_text_is_one_error(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/limbo.db"
    with limbo(place, ManualClock()) as store:
        store.park(parkings([1], 0))
    with sqlite3.connect(tmp_path / "limbo.db") as connection:
        connection.execute("UPDATE redeliver_limbo_msg SET failures = 'many'")
    with pytest.raises(LimboError, match="a value for failures that is no INT"):
        list(LimboReader(place, {"failures": "INT"}, None).read(LimboPartition(None, None)))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no url"),
        ({"url": "env:REDELIVER_NOT_SET"}, "the variable 'REDELIVER_NOT_SET' is not set"),
        ({"url": "mysql://root:hunter2@host/db"}, "a limbo cannot be kept in 'mysql'"),
        ({"url": "sqlite:////nowhere/limbo.db"}, "there is no such file"),
        ({"url": "sqlite:///limbo.db", "body": "perhaps"}, "'perhaps' is not true or false"),
        ({"url": "sqlite:///limbo.db", "partitions": "0"}, "'0' is no number of tasks"),
        ({"url": "sqlite:///limbo.db", "bodies": "true"}, "there is no option 'bodies'.*url, body, partitions"),
    ],
)
def test_an_option_that_cannot_be_meant_is_one_error_without_secrets(options: dict[str, str], told: str) -> None:
    with pytest.raises((ConfigError, LimboError), match=told) as raised:
        planned(options)
    assert "hunter2" not in str(raised.value)


def test_a_password_in_a_url_is_in_no_plan_and_in_no_error_of_spark(spark: SparkSession, capfd: Any) -> None:
    place = "postgresql://somebody:hunter2@127.0.0.1:1/nothing"
    with pytest.raises(Exception, match="cannot be reached") as raised:
        source(spark, place).collect()
    assert "hunter2" not in str(raised.value)
    assert "hunter2" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("sign", "same"),
    [("=", operator.eq), ("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge)],
)
def test_a_scan_compares_as_python_does(url: str, sign: str, same: Callable[[int, int], bool]) -> None:
    with Scan(url) as scan:
        ids = [id_ for rows in scan.rows(["id"]) for (id_,) in rows]
        some = ids[len(ids) // 2]
        found = [id_ for rows in scan.rows(["id"], tests=[ScanCondition("id", sign, some)]) for (id_,) in rows]
        others = [id_ for rows in scan.rows(["id"], tests=[ScanCondition("id", sign, some, True)]) for (id_,) in rows]
    assert sorted(found) == sorted(id_ for id_ in ids if same(id_, some))
    assert sorted(found + others) == sorted(ids)


def test_columns_and_rows_of_a_scan_say_the_same_whatever_is_in_a_text(url: str) -> None:
    odd = 'a "quoted" \\ text, ünïcode 🚚,\n\ttwo lines'
    sql(url, f"UPDATE redeliver_limbo_msg SET reason = '{odd}', copy_id = NULL WHERE msg_id / 3 * 3 = msg_id")
    names = ["id", "reason", "copy_id", "given_up", "due_us", "source", "body_bytes"]
    with Scan(url) as scan:
        by_row = [tuple(row) for rows in scan.rows(names) for row in rows]
        by_column = [row for columns in scan.columns(names) for row in zip(*columns, strict=True)]
        some = list(scan.columns(["reason"], tests=[ScanCondition("reason", "=", odd)]))
    assert by_column == by_row
    assert len(by_row) == COUNT
    assert {reason for (reasons,) in some for reason in reasons} == {odd}


def test_more_messages_than_are_fetched_at_a_time_come_once_each(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limbo_scan, "AT_ONCE", 32)
    with Scan(url) as scan:
        found = [ids for (ids,) in scan.columns(["id"])]
    assert [len(ids) for ids in found] == [32] * 7 + [26]
    assert sorted(id_ for ids in found for id_ in ids) == sorted(
        id_ for (id_,) in sql(url, "SELECT msg_id FROM dms_limbo_msg")
    )
