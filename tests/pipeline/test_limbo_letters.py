# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the snapshot of what stays in a limbo, as dead letters of the source `limbo`, which no plan sends back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError, LimboError
from redeliver_mw.limbo import LimboAdmin, Parking
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.message import Destination
from redeliver_mw.pipeline import Lake, copy_limbo, plan
from redeliver_mw.pipeline.draining.job import prepare
from redeliver_mw.pipeline.draining.manifests import current, doubts_of
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.lake.table_files import files_of
from tests.limbo.messages import count, limbo, message, sql
from tests.pipeline.drained import letter, put
from tests.storage.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = 1_000_000_000_000  # the ids of a limbo begin after it
GIVEN_UP, LETTER, WAITING = 1, 2, 3


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Return a function that gives the URL of another empty database at each call, of each kind in turn."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        return server.new_database
    numbers = itertools.count(1)
    return lambda: f"sqlite:///{tmp_path}/limbo{next(numbers)}.db"


@pytest.fixture
def url(empty: Callable[[], str]) -> str:
    """Return the URL of a limbo with a message that its target refused too often, a dead letter, and one that waits."""
    place, clock = empty(), ManualClock()
    headers = message(LETTER).headers | {"redeliver_uncopyable": "126 kB of headers", "redeliver_reason": "exhausted"}
    with limbo(place, clock) as store:
        due = clock.now().wall
        store.park([Parking(message(GIVEN_UP, target=Destination("DLQ.orders")), due)])
        store.park([Parking(message(LETTER, headers=headers, body=b"\xff whole"), due, source="queue:orders")])
        store.park([Parking(message(WAITING), due + 3600)])
    given_up = f"WHERE msg_id = {FIRST + GIVEN_UP}"
    sql(place, f"UPDATE dms_limbo_msg SET delivery_count = 85 {given_up}")
    sql(place, f"UPDATE redeliver_limbo_msg SET publishes = 84, last_error = 'password=hunter2' {given_up}")
    return place


def rows(lake: Path) -> dict[int, dict[str, Any]]:
    """Return the table's rows that came from the limbo, by the ids that they have in the limbo."""
    place = Lake(lake)
    found: list[dict[str, Any]] = []
    for file in files_of(place, "dead_letters"):
        with place.files.open(file.path) as opened:
            found += pq.read_table(opened).to_pylist()
    return {int(row["dl_id"].rpartition("-")[2]) - FIRST: row for row in found if row["source"] == "limbo"}


def test_what_stays_is_copied_whole_and_what_waits_is_counted(url: str, tmp_path: Path) -> None:
    done = copy_limbo(url, tmp_path / "lake")
    assert (done.letters, done.before, done.waiting) == (2, 0, 1)
    found = rows(tmp_path / "lake")
    assert set(found) == {GIVEN_UP, LETTER}
    whole = found[LETTER]
    assert (whole["body"], whole["body_bytes"], whole["message_key"]) == (b"\xff whole", 7, "lineage-2")
    assert (whole["original_destination"], whole["reason"], whole["failures"]) == ("orders", "exhausted", 3)
    assert (whole["dlq"], whole["owner"], whole["letter"]) == ("limbo", "limbo", None)
    assert dict(whole["headers"])["customer"] == "c2"
    assert (
        f"dead letter, for queue:orders: 126 kB of headers; send it with `redeliver limbo release {url}"
        in (whole["problem"])
    )
    assert "given up, for queue:DLQ.orders" in found[GIVEN_UP]["problem"]
    assert "hunter2" not in found[GIVEN_UP]["problem"]
    assert (found[GIVEN_UP]["broker"], found[GIVEN_UP]["generation"]) == ("mq:5672", 1)
    assert count(url) == 3  # the limbo has all of them


def otherwise(url: str) -> str:
    """Return another URL of the same limbo.

    A file is named from the present folder; the URL of a server's limbo has the driver's name and a password.
    """
    if url.startswith("sqlite"):
        return f"sqlite:///{Path(url).name}"
    return url.replace("postgresql://test@", "postgresql+psycopg://test:hunter2@")


def test_the_next_copy_replaces_the_one_before_and_nothing_else(
    url: str, empty: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    place = Lake(lake, create=True)
    put(place, [letter("drained")])
    copy_limbo(url, lake)
    first = rows(lake)
    monkeypatch.chdir(tmp_path)
    again = copy_limbo(otherwise(url), lake)
    assert "hunter2" not in str(rows(lake)[LETTER])
    assert (again.letters, again.before) == (2, 2)
    assert {id_: row["dl_id"] for id_, row in rows(lake).items()} == {id_: row["dl_id"] for id_, row in first.items()}
    with LimboAdmin(url) as admin:
        admin.release(id_=str(FIRST + GIVEN_UP))
    assert copy_limbo(url, lake).waiting == 2
    assert set(rows(lake)) == {LETTER}
    with LimboAdmin(url) as admin:
        admin.release(id_=str(FIRST + LETTER))
    assert (done := copy_limbo(url, lake)).letters == 0
    assert done.before == 1
    assert rows(lake) == {}
    assert [file.rows for file in files_of(place, "dead_letters")] == [1]  # what was drained
    other = empty()
    with limbo(other, ManualClock()):
        pass
    assert copy_limbo(other, lake).run is None
    assert doubts_of(current(place.files).manifests) == []


def test_two_limbos_stand_side_by_side_and_forget_counts_none_as_unsent(
    url: str, empty: Callable[[], str], tmp_path: Path
) -> None:
    lake, second = tmp_path / "lake", empty()
    with limbo(second, ManualClock()) as store:
        headers = message(9).headers | {"redeliver_uncopyable": "no", "redeliver_reason": "fatal"}
        store.park([Parking(message(9, headers=headers), 0.0)])
    copy_limbo(url, lake)
    copy_limbo(second, lake)
    assert len([file for file in files_of(Lake(lake), "dead_letters") for _ in range(file.rows)]) == 3
    assert forget(lake, "2100-01-01").unsent == 0


def test_a_limbo_is_not_drained_and_one_that_is_not_there_makes_no_lake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Copy what stays in a limbo with `redeliver pipeline limbo URL LAKE`"):
        prepare(f"sqlite:///{tmp_path}/limbo.db", "limbo", tmp_path / "lake")
    with pytest.raises(LimboError, match="there is no such file"):
        copy_limbo(f"sqlite:///{tmp_path}/none.db", tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_on_the_command_line(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "limbo", url, str(tmp_path / "lake")]) == 0
    told = capsys.readouterr()
    assert told.out == "2 messages copied, in place of 0\n"
    assert told.err == "note: 1 message not copied: the limbo sends what waits\n"
    assert run(["pipeline", "limbo", url, str(tmp_path / "lake"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["before"] == 2


@pytest.mark.parametrize("empty", ["sqlite"], indirect=True)  # a plan reads the lake only
def test_a_plan_leaves_out_what_a_limbo_holds_and_it_supersedes_no_letter(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    place = Lake(tmp_path / "lake", create=True)
    put(place, [letter("drained", broker="mq:5672", message_key="lineage-2", dead_us=1)])
    copy_limbo(url, place.root)
    assert place.dead_letters(spark).where("source = 'limbo'").count() == 2
    made = plan(spark, place, tmp_path / "plan")
    assert (made.letters, made.left_out) == (1, {"parked": 2})
    table: pa.Table = pq.read_table(tmp_path / "plan" / "left_out.parquet")
    assert all("redeliver limbo release" in detail for detail in table["detail"].to_pylist())
