# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tells what a replay is for: an outage, a fix that is half right, a canary, a fix that is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from redeliver_mw import App
from redeliver_mw.message import Delivery
from redeliver_mw.pipeline import drain, plan, replay
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare
from tests.faults.load import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

ORDERS, CANARY = 200, 40
SOURCE, DLQ = "fixes.orders", "dlq.fixes.orders"


class Warehouse:
    """Ships the orders that it works for; `works` says which ones these are."""

    def __init__(self) -> None:
        self.state = "away"
        self.tries: Counter[tuple[int, str, int]] = Counter()
        self.shipped: Counter[int] = Counter()

    def works(self, order: int) -> bool:
        return self.state == "fixed" or (self.state == "half right" and order % 2 == 0)

    def ship(self, delivery: Delivery) -> None:
        order = int(delivery.text)
        self.tries[order, str(delivery.headers.get("redeliver_generation", "0")), delivery.failures] += 1
        if not self.works(order):
            raise ConnectionError("the warehouse does not answer")
        self.shipped[order] += 1


@pytest.mark.timeout(1500)
def test_an_outage_is_replayed_after_a_canary_has_stopped_the_half_right_fix(
    rabbitmq43: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    url, lake, journal = rabbitmq43.url, tmp_path / "lake", tmp_path / "journal"
    declare(rabbitmq43, SOURCE, DLQ)
    warehouse = Warehouse()
    app = App(url, policy=f"1:50; 2:move(queue:{DLQ})", journal=str(journal))
    app.handler(SOURCE, workers=2)(warehouse.ship)
    with app, connect(url) as session:
        # The outage: every order fails twice and dies.
        for order in range(ORDERS):
            session.publish(SOURCE, str(order).encode())
        until(lambda: session.depth(DLQ) == ORDERS, 120, "they do not die")
        assert drain(spark, url, DLQ, lake).letters == ORDERS
        assert session.depth(DLQ) == 0
        first = plan(spark, lake, tmp_path / "first", where="error_type = 'ConnectionError'")
        assert first.letters == ORDERS

        # A fix, they say. The canary knows better, and the others wait.
        warehouse.state = "half right"
        done = replay(
            spark, tmp_path / "first", url, execute=True, canary=CANARY, stop_at="20%", journal=journal, wait=60
        )
        assert done.canary is not None
        assert (done.canary.verdict, done.whole, done.replayed, done.left) == ("failed", False, CANARY, ORDERS - CANARY)
        assert "died again, more than 20%" in done.stopped
        until(lambda: sum(warehouse.shipped.values()) + session.depth(DLQ) == CANARY, 60, "the canary has no end")
        again = session.depth(DLQ)
        assert again > CANARY // 5

        # The second fix. The same plan goes on where it was.
        warehouse.state = "fixed"
        done = replay(
            spark, tmp_path / "first", url, execute=True, canary="10%", stop_at="20%", journal=journal, wait=60
        )
        assert done.canary is not None
        assert (done.canary.letters, done.canary.verdict, done.canary.died) == (16, "passed", 0)
        assert (done.whole, done.sent, done.stopped, done.died_again) == (True, ORDERS - CANARY, "", 0)
        outcomes = pq.read_table(tmp_path / "first" / "outcomes.parquet").to_pylist()
        assert Counter((row["outcome"], row["died_again"]) for row in outcomes) == {
            ("replayed", True): again,
            ("replayed", False): ORDERS - again,
        }

        # Those that died again are letters like any other.
        assert drain(spark, url, DLQ, lake).letters == again
        second = plan(spark, lake, tmp_path / "second")
        assert second.letters == again
        assert replay(spark, tmp_path / "second", url, execute=True).whole
        until(lambda: sum(warehouse.shipped.values()) == ORDERS, 60, "not all are shipped")

        # Nothing is left, and nothing was sent twice.
        assert (session.depth(SOURCE), session.depth(DLQ)) == (0, 0)
    assert warehouse.shipped == Counter(range(ORDERS))
    assert set(warehouse.tries.values()) == {1}
    generations = Counter(generation for order, generation, failures in warehouse.tries if failures == 0)
    assert generations == {"0": ORDERS, "1": ORDERS, "2": again}
