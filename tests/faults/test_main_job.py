# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the main job through every way in, on the real brokers.

Of 300 messages 30 always fail, and 60 recover.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise, product
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.faults.handling import DELAYS
from tests.faults.load import Line, all_ended, bodies, kill, lines, start, until
from tests.faults.sites import site_of

WAYS = ("app", "drop-in", "decorated", "pull")
PLACES = [
    *product(("rabbitmq310", "rabbitmq43"), ("classic", "quorum"), WAYS),
    *product(("activemq63",), ("queue",), WAYS),
    ("activemq518", "queue", "app"),
    *product(("artemis244",), ("queue",), WAYS),
]


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(("fixture", "kind", "way"), PLACES)
def test_each_message_is_handled_or_dead_lettered_exactly_once(
    fixture: str, kind: str, way: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    site = site_of(broker, kind)
    queue, log = f"job.{way}.{kind}", tmp_path / "runs.log"
    site.prepare(queue, bodies())
    consumer = start(way, broker, queue, log)
    try:
        until(lambda: all_ended(site, queue, log), 60, "not every message came to its end")
        until(lambda: site.settled(queue), 20, "not every message was settled")
    finally:
        kill(consumer)

    runs: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines(log):
        if line.what == "begin":
            runs[line.body].append(line)
    letters = site.drain(f"DLQ.{queue}")
    assert Counter(line.body for line in lines(log) if line.what == "done") == Counter(
        body for body in bodies() if not body.startswith("poison")
    )
    assert Counter(body for body, _ in letters) == Counter(body for body in bodies() if body.startswith("poison"))
    assert site.count(queue) == 0
    for body in bodies():
        assert [run.count for run in runs[body]] == list(range(1, expected_runs(body) + 1))
        for delay, (earlier, later) in zip(DELAYS, pairwise(runs[body]), strict=False):
            assert later.at - earlier.at >= delay, "a retry came too early"
    for _, headers in letters:
        assert headers["original-destination"] == site.address(queue)
        assert headers["redeliver_original_destination"] == queue
        assert (headers["redeliver_failures"], headers["redeliver_reason"]) == ("4", "exhausted")


def expected_runs(body: str) -> int:
    """Return how often a message runs: four times for `poison`, as often as the body says for `heal`, else once.

    A poisonous message is dead after four runs.
    """
    kind, _, rest = body.partition(":")
    return {"poison": 4, "fine": 1}.get(kind) or int(rest.partition(":")[0])
