# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Every program reads the same rows of a lake: by its class, as `format("redeliver")`, by Delta logs, as Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as sf
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan
from pyspark.sql.pandas.types import from_arrow_schema

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake, LakeError
from redeliver_mw.pipeline.arrow_schemas import arrow_schema
from redeliver_mw.pipeline.delta.export import export, folder_of
from redeliver_mw.pipeline.draining.manifests import read_all, to_json
from redeliver_mw.pipeline.lake.table_files import files_of
from redeliver_mw.pipeline.lake_source import LakePartition, LakeReader, LakeSource
from redeliver_mw.pipeline.schemas import MARTS
from tests.pages import FENCE
from tests.pipeline.drained import DAY, NOON, letter, put
from tests.pipeline.journals import SECOND, START_US
from tests.pipeline.written_lakes import any_rows, put_events, put_marts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "open-tables.md"
PUSH = "spark.sql.python.filterPushdown.enabled"
A_DAY = DAY // SECOND  # the number of the first record of the second day
DAYS = [f"dt=2026-11-0{number}" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a lake with events of three days, marts, letters and Delta logs, which tests only read."""
    lake = Lake(tmp_path_factory.mktemp("source") / "lake", create=True)
    put_events(lake, [0, 1, 2, A_DAY, A_DAY + 1, 2 * A_DAY + 1], bad=["half"])
    put_marts(lake, 0, {name: any_rows(name) for name in MARTS})
    look(lake, [letter("l1"), letter("l2")])
    put(lake, [letter("a1", headers={"x": "y"}), letter("a2", body=None), letter("b1", dead_us=NOON + DAY)])
    export(lake)
    return Path(lake.root)


def look(lake: Lake, letters: list[dict[str, Any]]) -> None:
    """Add one more run of `drain --peek`, with these letters."""
    put(lake, [one | {"owner": "broker", "headers": dict(one["headers"])} for one in letters])
    newest = read_all(lake.files)[-1]
    lake.files.publish(newest.path, to_json(replace(newest, owner="broker")))


def source(spark: SparkSession, place: Path | str, **options: str) -> DataFrame:
    return spark.read.format("redeliver").options(**options).load(str(place))


def by_class(spark: SparkSession, place: Path, table: str) -> DataFrame:
    lake = Lake(place)
    own: dict[str, Callable[[SparkSession], DataFrame]] = {
        "events": lake.events,
        "dead_letters": lake.dead_letters,
        "quarantine": lake.quarantine,
    }
    return own[table](spark) if table in own else lake.mart(spark, table)


def plain(value: Any) -> Any:
    """Return a value whose text can be compared: Spark, Arrow and DuckDB each have their own maps, rows and bytes."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return sorted((key, plain(one)) for key, one in value.items())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def as_sets(rows: list[dict[str, Any]], table: str) -> list[str]:
    """Return rows that can be compared, with the table's own columns: a Delta table has `dt` and `run` as well."""
    names = arrow_schema(LakeSource({"table": table}).schema()).names
    maps = {"headers"} & set(names)
    fixed = [{**one, **{name: dict(one[name]) for name in maps if one[name] is not None}} for one in rows]
    return sorted(str([plain(one[name]) for name in names]) for one in fixed)


def with_spark(frame: DataFrame) -> list[dict[str, Any]]:
    return [one.asDict() for one in frame.collect()]


# The same rows


@pytest.mark.parametrize("table", ["events", "dead_letters", "messages"])
def test_every_program_reads_the_same_rows(spark: SparkSession, place: Path, table: str) -> None:
    frame = by_class(spark, place, table)
    wanted = as_sets(with_spark(frame), table)
    assert len(wanted) == {"events": 6, "dead_letters": 5}.get(table, 2)
    read = source(spark, place, table=table)
    assert read.schema == frame.schema
    assert as_sets(with_spark(read), table) == wanted

    delta = place / folder_of(table)
    assert as_sets(pl.scan_delta(str(delta)).collect().to_dicts(), table) == wanted
    with duckdb.connect() as connection:
        connection.register("logged", DeltaTable(delta).to_pyarrow_dataset())
        assert as_sets(connection.sql("SELECT * FROM logged").to_arrow_table().to_pylist(), table) == wanted
    by_log = spark.read.schema(frame.schema).option("basePath", str(delta)).parquet(*DeltaTable(delta).file_uris())
    assert as_sets(with_spark(by_log.select(frame.columns)), table) == wanted

    files = [str(place / file.path) for file in files_of(Lake(place), table)]
    assert as_sets(pl.scan_parquet(files, hive_partitioning=table == "events").collect().to_dicts(), table) == wanted
    hive = f"hive_partitioning = {str(table == 'events').lower()}"
    with duckdb.connect() as connection:
        parquet = connection.sql(f"SELECT * FROM read_parquet({files}, {hive})").to_arrow_table().to_pylist()
    assert as_sets(parquet, table) == wanted


@pytest.mark.parametrize("table", [*MARTS, "quarantine"])
def test_a_task_reads_exactly_the_rows_of_the_files(place: Path, table: str) -> None:
    files = [str(place / file.path) for file in files_of(Lake(place), table)]
    wanted = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert wanted
    assert read(place, table=table) == wanted
    if table in MARTS:
        delta = DeltaTable(place / folder_of(table))
        assert delta.to_pyarrow_table().to_pylist() == wanted
        assert pl.scan_delta(str(place / folder_of(table))).collect().height == len(wanted)


def test_the_table_is_that_of_the_events_if_none_is_named(spark: SparkSession, place: Path) -> None:
    assert spark.read.format("redeliver").load(str(place)).count() == 6


def test_a_letter_that_was_looked_at_and_drained_later_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    look(lake, [letter("l1"), letter("l2")])
    put(lake, [letter("l1")])
    found = source(spark, lake.root, table="dead_letters")
    assert {(one["dl_id"], one["owner"]) for one in found.collect()} == {("l1", "lake"), ("l2", "broker")}
    assert sorted(found.select("dl_id").collect()) == sorted(lake.dead_letters(spark).select("dl_id").collect())


# Options and conditions


@pytest.mark.parametrize(
    ("table", "options", "wanted"),
    [
        ("events", {"since": "2026-11-02"}, {A_DAY, A_DAY + 1, 2 * A_DAY + 1}),
        ("events", {"until": "2026-11-01T00:00:01Z"}, {0}),
        ("events", {"since": "2026-11-01T00:00:01Z", "until": "2026-11-02"}, {1, 2}),
        ("events", {"since": "2030-01-01"}, set()),
        ("dead_letters", {"since": "2026-11-30"}, {"b1"}),
        ("dead_letters", {"until": "2026-11-30"}, {"a1", "a2", "l1", "l2"}),
        ("attempt_curve", {"since": "2026-11-02", "until": "2026-11-03"}, {date(2026, 11, 2)}),
        ("storms", {"since": "2026-11-01T00:00:00.000001Z"}, {START_US + 1}),
    ],
)
def test_since_and_until_select_rows_by_their_time(
    place: Path, table: str, options: dict[str, str], wanted: set[Any]
) -> None:
    name = {"events": "ts_us", "dead_letters": "dl_id", "attempt_curve": "day", "storms": "window_us"}[table]
    if table == "events":
        wanted = {START_US + number * SECOND for number in wanted}
    assert {row[name] for row in read(place, table=table, **options)} == wanted


def test_since_and_until_are_those_of_the_class(spark: SparkSession, place: Path) -> None:
    wanted = Lake(place).events(spark, "2026-11-01T00:00:01Z", "2026-11-02T00:00:02Z")
    found = source(spark, place, since="2026-11-01T00:00:01Z", until="2026-11-02T00:00:02Z")
    assert as_sets(with_spark(found), "events") == as_sets(with_spark(wanted), "events")


def test_fewer_columns_are_read_if_a_schema_says_so(spark: SparkSession, place: Path) -> None:
    few = spark.read.format("redeliver").schema("dl_id STRING, dlq STRING").option("table", "dead_letters")
    assert {tuple(one) for one in few.load(str(place)).collect()} == {
        (dl_id, "DLQ.orders") for dl_id in ("a1", "a2", "b1", "l1", "l2")
    }
    until = spark.read.format("redeliver").schema("dt DATE, outcome STRING").option("until", "2026-11-01T00:00:01Z")
    assert [tuple(one) for one in until.load(str(place)).collect()] == [(date(2026, 11, 1), "redelivered")]


@contextmanager
def pushing(spark: SparkSession) -> Iterator[None]:
    before = str(spark.conf.get(PUSH))
    spark.conf.set(PUSH, "true")
    try:
        yield
    finally:
        spark.conf.set(PUSH, before)


def test_conditions_give_the_same_rows_whether_spark_passes_them_on_or_not(spark: SparkSession, place: Path) -> None:
    conditions = [
        (sf.col("dt") == sf.lit(date(2026, 11, 2)), 2),
        ((sf.col("ts_us") <= START_US + SECOND) & (sf.col("outcome") == "redelivered"), 1),
        ((sf.col("dt") < date(2026, 11, 2)) | (sf.col("outcome") == "redelivered"), 4),
    ]
    for condition, wanted in conditions:
        assert source(spark, place).where(condition).count() == wanted
        with pushing(spark):
            assert source(spark, place).where(condition).count() == wanted


def planned(place: Path | str, *filters: Filter, **options: str) -> list[LakePartition]:
    """Ask for all that Spark asks for until it knows which files each task reads, and return the tasks' parts."""
    given = LakeSource({"path": str(place), **options})
    reader: Any = given.reader(from_arrow_schema(arrow_schema(given.schema())))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    found: list[LakePartition] = list(reader.partitions())
    return found


def read(place: Path, **options: str) -> list[dict[str, Any]]:
    """Return the rows that Spark's tasks would read, without Spark."""
    given = LakeSource({"path": str(place), **options})
    reader = given.reader(from_arrow_schema(arrow_schema(given.schema())))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def days(parts: list[LakePartition]) -> list[str]:
    return sorted(file.path.split("/")[1] for part in parts for file in part.files)


def test_only_the_days_that_are_asked_for_are_read(place: Path) -> None:
    second = date(2026, 11, 2)
    assert days(planned(place)) == DAYS
    assert days(planned(place, since="2026-11-02", until="2026-11-03")) == DAYS[1:2]
    assert days(planned(place, EqualTo(("dt",), second))) == DAYS[1:2]
    assert days(planned(place, GreaterThan(("ts_us",), START_US + DAY))) == DAYS[1:]
    assert days(planned(place, LessThan(("dt",), second), since="2026-11-02")) == []
    assert days(planned(place, LessThan(("ts_us",), START_US))) == []
    assert days(planned(place, In(("dt",), (date(2026, 11, 1), second)))) == DAYS[:2]
    assert days(planned(place, GreaterThanOrEqual(("handler_us",), 5), IsNull(("dt",)))) == DAYS


def test_small_files_share_a_task_and_the_present_state_is_what_counts(lake: Lake) -> None:
    for number in range(5):
        put_events(lake, [number])
    source_ = LakeSource({"path": lake.root})
    reader = source_.reader(from_arrow_schema(arrow_schema(source_.schema())))
    assert [len(part.files) for part in reader.partitions() if isinstance(part, LakePartition)] == [5]
    put_events(lake, [5])
    (part,) = reader.partitions()
    batches = list(reader.read(part))
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert sum(len(batch) for batch in batches) == 6
    assert isinstance(reader, LakeReader)


# Bad input


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"tabel": "events"}, "there is no option 'tabel'. Options are table, since, until"),
        ({"table": "marts"}, "option table: 'marts' is no table of a lake. Take one of events, quarantine"),
        ({"since": "soon"}, "since: 'soon' is no time"),
        ({"since": "2026-11-03", "until": "2026-11-02"}, "ends at 2026-11-02, which is not after 2026-11-03"),
        ({"table": "recovery", "since": "2026-11-03T01:00Z"}, "marts are by day"),
        ({"table": "messages", "since": "2026-11-03"}, "the rows of messages have no single time"),
        ({"path": " "}, "no lake"),
    ],
)
def test_bad_options_are_one_message(place: Path, options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(place, **options)
    assert what in str(caught.value)
    assert caught.value.code == "option-value"


def test_a_folder_without_a_lake_a_lake_without_rows_and_other_columns_are_said(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no lake is here"):
        planned(tmp_path)
    with pytest.raises(LakeError, match="the lake holds no records yet"):
        planned(lake.root)
    with pytest.raises(LakeError, match="the mart 'waste' is not there yet"):
        planned(lake.root, table="waste")
    with pytest.raises(LakeError, match="the lake has no back-test yet"):
        planned(lake.root, table="backtest")
    given = LakeSource({"path": lake.root})
    with pytest.raises(ConfigError, match="there is no column ts_us INT in events"):
        given.reader(from_arrow_schema(pa.schema([("ts_us", pa.int32())])))


def test_an_error_reaches_a_notebook_with_its_cure(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no lake is here: _lake\.json is missing") as caught:
        source(spark, tmp_path).collect()
    assert type(caught.value).__module__.startswith("pyspark.")


# The page


def test_the_programs_of_the_page_read_the_lake(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.parent)
    known: dict[str, dict[str, Any]] = {}
    for block in FENCE.finditer(PAGE.read_text()):
        language, _, program = block["info"].strip().partition(" ")
        if language == "py":
            text = block["text"].replace('load("lake")', f'load("{place}")')  # Spark was started elsewhere
            exec(text, known.setdefault(program, {}))
    found = known["spark"]
    assert [tuple(one) for one in found["failed"].collect()] == [("orders", 2)]
    assert [one["dl_id"] for one in found["letters"].select("dl_id").collect()] == ["b1"]
    assert found["waste"].count() == 2
    assert [tuple(one) for one in found["by_queue"].collect()] == [("DLQ.orders", "exhausted", 5)]
    assert known["duckdb"]["found"] == [("orders", 2)]
    assert known["polars"]["by_queue"].rows() == [("DLQ.orders", 5)]
    assert known["polars"]["waste"].height == 2
    known["duckdb"]["connection"].close()
