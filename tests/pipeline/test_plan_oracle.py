# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which random letters go and in which order, beside the same said in DuckDB's SQL and in plain Python."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redeliver_mw.pipeline.plans.bucket_files import LETTERS as PLAN_COLUMNS
from redeliver_mw.pipeline.plans.build import buckets_for, rank
from redeliver_mw.pipeline.plans.eligibility import SENT, decide, held_back
from redeliver_mw.pipeline.schemas import DEAD_LETTERS, PLAN
from tests.pipeline.drained import NOON, letter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LETTER = st.fixed_dictionaries(
    {
        "message_key": st.sampled_from([None, "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"]),
        "broker": st.sampled_from(["a", "a", "a", "b"]),
        "group_id": st.sampled_from([None, "g1", "g2", "g3"]),
        "generation": st.integers(0, 3),
        "dead_us": st.integers(NOON, NOON + 3),
        "problem": st.sampled_from([None, None, None, "no"]),
        "asked": st.booleans(),
        "is_sent": st.sampled_from([False, False, False, True]),
    }
)
SEEN = pa.schema(
    [
        ("dl_id", pa.string()),
        ("message_key", pa.string()),
        ("broker", pa.string()),
        ("generation", pa.int32()),
        ("dead_us", pa.int64()),
        ("problem", pa.string()),
        ("asked", pa.bool_()),
        ("is_sent", pa.bool_()),
    ]
)
DECIDED = """
WITH last AS (
    SELECT broker, message_key, max_by(dl_id, (generation, dead_us, dl_id)) AS id
    FROM letters WHERE message_key IS NOT NULL GROUP BY ALL
), sent AS (
    SELECT broker, message_key, max(generation) AS generation
    FROM letters WHERE is_sent AND message_key IS NOT NULL GROUP BY ALL
)
SELECT l.dl_id, CASE
    WHEN l.is_sent OR l.generation <= sent.generation THEN 'replayed'
    WHEN last.id <> l.dl_id THEN 'superseded'
    WHEN l.problem IS NOT NULL THEN 'problem'
    WHEN l.generation >= 3 THEN 'lifetime' END AS why
FROM letters l LEFT JOIN last USING (broker, message_key) LEFT JOIN sent USING (broker, message_key) WHERE asked
"""


def table(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    made = [
        letter(row["dl_id"], **{k: v for k, v in row.items() if k not in ("dl_id", "asked", "is_sent")}) for row in rows
    ]
    return spark.createDataFrame([one | {"headers": {}} for one in made], DEAD_LETTERS)


@FEW
@given(st.lists(LETTER, min_size=1, max_size=60))
def test_what_goes_and_why_the_others_do_not_is_what_sql_says_of_the_same_letters(
    spark: SparkSession, drawn: list[dict[str, Any]]
) -> None:
    rows = [{"dl_id": f"d{number:02}", **row} for number, row in enumerate(drawn)]
    sent = [(r["dl_id"], r["broker"], r["message_key"], r["generation"]) for r in rows if r["is_sent"]]
    everything, asked = table(spark, rows), table(spark, [row for row in rows if row["asked"]])
    found = decide(asked, everything, spark.createDataFrame(sent, SENT), 3).select("dl_id", "why").collect()
    with duckdb.connect() as database:
        database.register("letters", pa.Table.from_pylist(rows, schema=SEEN))
        expected = database.execute(DECIDED).fetchall()
    assert sorted(map(tuple, found), key=repr) == sorted(expected, key=repr)


@FEW
@given(st.lists(LETTER, min_size=1, max_size=60))
def test_behind_what_cannot_go_nothing_of_its_group_goes(spark: SparkSession, drawn: list[dict[str, Any]]) -> None:
    rows = [{"dl_id": f"d{number:02}", **row} for number, row in enumerate(drawn)]
    whole = table(spark, rows)
    decided = decide(whole, whole, spark.createDataFrame([], SENT), 3)
    before = {row["dl_id"]: row["why"] for row in decided.collect()}
    expected = dict(before)
    stopped: set[str] = set()
    for row in sorted(rows, key=lambda row: (row["dead_us"], row["dl_id"])):
        why, group = before[row["dl_id"]], row["group_id"]
        if why is None and group in stopped:
            expected[row["dl_id"]] = "behind"
        if why in ("problem", "lifetime") and group is not None:
            stopped.add(group)
    assert {row["dl_id"]: row["why"] for row in held_back(decided).collect()} == expected


@FEW
@given(st.lists(LETTER, min_size=1, max_size=80), st.integers(1, 5), st.booleans())
def test_ranks_are_one_order_in_which_groups_stay_together_by_death_and_whole_in_their_bucket(
    spark: SparkSession, drawn: list[dict[str, Any]], buckets: int, ordered: bool
) -> None:
    rows = [{"dl_id": f"d{number:02}", **row} for number, row in enumerate(drawn)]
    # The smallest slices are as good as the largest: a count of letters that is not theirs makes many.
    found = rank(table(spark, rows), 10_000_000, buckets, ordered=ordered).collect()
    found.sort(key=lambda row: row["rank"])
    assert [row["rank"] for row in found] == list(range(len(rows)))
    assert {row["dl_id"] for row in found} == {row["dl_id"] for row in rows}
    places: dict[int, list[int]] = defaultdict(list)
    groups: dict[str, list[Any]] = defaultdict(list)
    for row in found:
        places[row["bucket"]].append(row["position"])
        group = row["group_id"] if ordered else None
        groups[f"g{group}" if group else f"k{row['message_key']}" if row["message_key"] else row["dl_id"]].append(row)
    assert all(0 <= bucket < buckets for bucket in places)
    assert all(positions == list(range(len(positions))) for positions in places.values())
    for members in groups.values():
        assert members == sorted(members, key=lambda row: (row["dead_us"], row["dl_id"]))
        assert [row["rank"] for row in members] == list(range(members[0]["rank"], members[0]["rank"] + len(members)))
        assert len({row["bucket"] for row in members}) == 1


@pytest.mark.parametrize(
    ("letters", "buckets"),
    [(0, 1), (1, 1), (64, 1), (65, 2), (1_000, 16), (1_600_001, 17), (20_000_000, 200), (10**9, 1024)],
)
def test_there_are_as_many_buckets_as_are_worth_it(letters: int, buckets: int) -> None:
    assert buckets_for(letters) == buckets


def test_the_files_of_a_plan_have_the_columns_that_are_promised(spark: SparkSession) -> None:
    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
    }
    promised = [(name, kinds[kind]) for name, kind in spark.createDataFrame([], PLAN).dtypes]
    assert [(field.name, field.type) for field in PLAN_COLUMNS] == promised
