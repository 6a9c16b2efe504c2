# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Spark drains dead letters from real brokers: all of them, once, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redeliver_mw.pipeline import Lake, LakeError, drain
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.dead_letters.many_letters import depth, publish_letters
from tests.disks import fill, small_disk_at
from tests.faults.load import until
from tests.pipeline.letters import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MANY, SOME = 8_000, 1_500
BATCH = 200
THREE = ["rabbitmq43", "artemis244", "activemq63"]


@pytest.fixture(params=THREE)
def each(request: pytest.FixtureRequest) -> Broker:
    """Return one broker of each kind in turn."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def dlq(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test has."""
    return f"dlq.{abs(hash(request.node.nodeid)):x}"


def bodies_in(lake: Path) -> list[bytes]:
    return [bytes(body) for (body,) in table(Lake(lake), "body")]


# -- what is drained --------------------------------------------------------------------------------


def test_all_letters_are_rows_once_and_the_queue_is_empty(
    spark: SparkSession, each: Broker, dlq: str, tmp_path: Path
) -> None:
    bodies = publish_letters(each, dlq, SOME)
    seen: list[tuple[str, int, int]] = []
    done = drain(spark, each.url, dlq, tmp_path, progress=lambda *how_far: seen.append(how_far))
    assert (done.found, done.letters, done.again, done.stay, done.rest) == (SOME, SOME, 0, 0, "")
    rows = Lake(tmp_path).dead_letters(spark)
    assert rows.select("dl_id").distinct().count() == SOME
    assert set(bodies_in(tmp_path)) == bodies
    assert depth(each, dlq) == 0
    assert all(0 <= now <= of == SOME for _, now, of in seen)
    ours = rows.where("error_type = 'ValueError' AND message_key LIKE 'lineage-%' AND original_destination = 'orders'")
    assert ours.count() == len(range(0, SOME, 3))


def test_what_dies_after_the_start_is_left_to_the_next_run(
    spark: SparkSession, rabbitmq43: Broker, dlq: str, tmp_path: Path
) -> None:
    """More letters come while the tasks are at work: as soon as the first batch is staged."""
    publish_letters(rabbitmq43, dlq, 2_000)
    staged = threading.Event()

    def more() -> None:
        until(lambda: staged.is_set() or any((tmp_path / "dead_letters").rglob("*.parquet")), 120, "nothing is staged")
        with connect(rabbitmq43.url) as session:
            session.publish(dlq, b"late")

    late = threading.Thread(target=more)
    late.start()
    done = drain(spark, rabbitmq43.url, dlq, tmp_path, batch=100)
    staged.set()
    late.join()
    assert (done.found, done.letters) == (2_000, 2_000)
    assert depth(rabbitmq43, dlq) == 1
    assert drain(spark, rabbitmq43.url, dlq, tmp_path).letters == 1
    assert b"late" in bodies_in(tmp_path)


def test_it_stops_in_good_order_and_the_next_run_goes_on(
    spark: SparkSession, each: Broker, dlq: str, tmp_path: Path
) -> None:
    bodies = publish_letters(each, dlq, 3_000)
    stop = threading.Event()

    def tell(what: str, done: int, of: int) -> None:
        if done:
            stop.set()

    first = drain(spark, each.url, dlq, tmp_path, batch=50, stop=stop, progress=tell)
    assert first.stopped
    assert first.letters == len(bodies_in(tmp_path))
    second = drain(spark, each.url, dlq, tmp_path)
    assert first.letters + second.letters == 3_000
    assert sorted(bodies_in(tmp_path)) == sorted(bodies)


# -- bad weather ------------------------------------------------------------------------------------


def test_a_full_disk_is_one_clear_error_and_no_letter_is_lost(
    spark: SparkSession, rabbitmq43: Broker, dlq: str, tmp_path: Path
) -> None:
    bodies = publish_letters(rabbitmq43, dlq, 300)
    with small_disk_at(tmp_path / "disk", "1m") as disk:
        lake = disk / "lake"
        Lake(lake, create=True)
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "ballast")
        with pytest.raises(LakeError, match="the disk is full"):
            drain(spark, rabbitmq43.url, dlq, lake)
        assert depth(rabbitmq43, dlq) == 300
        (disk / "ballast").unlink()
        assert drain(spark, rabbitmq43.url, dlq, lake).letters == 300
        assert set(bodies_in(lake)) == bodies


def test_a_broker_that_dies_in_the_middle_loses_nothing(
    spark: SparkSession, each: Broker, dlq: str, tmp_path: Path
) -> None:
    """The broker is up again at once. The letters whose settling the broker has forgotten come a second time."""
    only_if(each.can_restart, "kill")
    bodies = publish_letters(each, dlq, 3_000)
    killed = threading.Event()

    def tell(what: str, done: int, of: int) -> None:
        if done and not killed.is_set():
            killed.set()
            each.kill()
            each.start()

    letters = twice = 0
    for _ in range(5):
        done = drain(spark, each.url, dlq, tmp_path, batch=100, progress=tell)
        letters, twice = letters + done.letters, twice + done.again
        if not done.found:
            break
    found = bodies_in(tmp_path)
    assert set(found) == bodies
    assert len(found) == letters


# -- killed -----------------------------------------------------------------------------------------


class Killed:
    """Runs drains in a Spark of their own, whose workers are killed at lines picked by chance."""

    def __init__(self, folder: Path, master: str, kills: int, seed: int, brokers: dict[str, Broker]) -> None:
        tickets, self.lake = folder / "kills", folder / "lake"
        tickets.mkdir()
        places = [word for dlq, broker in brokers.items() for word in (broker.url, dlq)]
        path = os.pathsep.join(map(str, (HERE / "killing", ROOT, ROOT / "adapters")))
        env = os.environ | {
            "PYTHONPATH": path,
            "REDELIVER_KILLS": str(tickets),
            "REDELIVER_KILLS_SEED": str(seed),
            "REDELIVER_KILLS_CODE": str(ROOT),
        }
        argv = [sys.executable, HERE / "killing" / "drains.py", self.lake, master, BATCH, kills, *places]
        done = subprocess.run(list(map(str, argv)), env=env, capture_output=True, text=True, timeout=550, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        self.drains: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        self.kills = (tickets / "log").read_text().splitlines() if (tickets / "log").exists() else []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tasks_killed_at_random_lines_lose_nothing_and_repeat_nothing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Spark tries killed tasks again. Letters that nothing tells apart may be there twice, a batch for each kill."""
    brokers = {f"dlq.killed.{name}": request.getfixturevalue(name) for name in THREE}
    bodies = {dlq: publish_letters(broker, dlq, MANY) for dlq, broker in brokers.items()}
    killed = Killed(tmp_path, "local[2,4]", 5, 1, brokers)
    assert len(killed.kills) >= 2  # of 15 that may be had: which lines are reached is chance
    for dlq, broker in brokers.items():
        rows = table(Lake(killed.lake / dlq), "body, dl_id, message_id")
        assert {bytes(body) for body, _, _ in rows} == bodies[dlq]
        assert len({dl_id for _, dl_id, _ in rows}) == len(rows)
        known = [bytes(body) for body, _, message_id in rows if message_id is not None]
        assert len(set(known)) == len(known)
        assert len(rows) - MANY <= BATCH * len(killed.kills)
        assert depth(broker, dlq) == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_where_spark_does_not_try_again_it_says_so_and_the_next_run_goes_on(
    rabbitmq43: Broker, dlq: str, tmp_path: Path
) -> None:
    bodies = publish_letters(rabbitmq43, dlq, 4_000)
    killed = Killed(tmp_path, "local[2]", 2, 2, {dlq: rabbitmq43})
    troubles = [one.get("error") or one["rest"] for one in killed.drains if "error" in one or one["rest"]]
    assert 1 <= len(troubles) <= len(killed.kills)
    assert all("Spark gave up" in trouble for trouble in troubles)
    assert sorted(bodies_in(killed.lake / dlq)) == sorted(bodies)
