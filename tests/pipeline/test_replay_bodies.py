# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters go from a queue to a plan without bodies, and back to real brokers: byte for byte, or the replay says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.pipeline import Lake, drain, plan, replay
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, put_dead_letters
from tests.pipeline.replays import taken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BODIES = [b"\xff\x00 letter %d" % number for number in range(60)]


@pytest.mark.parametrize("name", ["rabbitmq43", "activemq63", "artemis244"])
def test_bodies_that_stayed_in_the_lake_arrive_as_they_were(
    name: str, request: pytest.FixtureRequest, spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(name)
    source, dlq = "bodies.orders", "dlq.bodies.orders"
    declare(broker, source, dlq)
    with connect(broker.url) as session:
        put_dead_letters(session, dlq, source, BODIES)
    assert drain(spark, broker.url, dlq, lake.root).letters == len(BODIES)
    made = plan(spark, lake, tmp_path / "plan", redact=lambda _: "?", edits=["header.repaired=yes"])
    assert made.letters == len(BODIES)

    assert replay(spark, tmp_path / "plan", broker.url, execute=True, canary=5, wait=0).whole

    found = taken(broker.url, source)
    assert Counter(one.body for one in found) == Counter(BODIES)
    assert {one.headers["repaired"] for one in found} == {"yes"}


def test_letters_whose_bodies_were_forgotten_are_refused_and_counted(
    rabbitmq43: Broker, spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    source, dlq = "bare.orders", "dlq.bare.orders"
    declare(rabbitmq43, source, dlq)
    with connect(rabbitmq43.url) as session:
        put_dead_letters(session, dlq, source, BODIES)
    drain(spark, rabbitmq43.url, dlq, lake.root)
    plan(spark, lake, tmp_path / "plan", bodies=False)
    forget(lake, "2100-01-01", bodies_only=True, execute=True)

    done = replay(spark, tmp_path / "plan", rabbitmq43.url, execute=True)

    assert (done.replayed, done.refused) == (0, len(BODIES))
    why = "its body is neither in the plan nor, as it was planned, in the lake [message-not-copyable]"
    assert done.refusals == [(source, why, 60)]
    assert taken(rabbitmq43.url, source) == []
