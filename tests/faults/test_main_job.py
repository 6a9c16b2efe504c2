# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The main job: 300 messages, 30 of which always fail and 60 heal, through every way in, on the real RabbitMQ."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.faults.consumer import DELAYS
from tests.faults.load import Line, all_ended, bodies, drain, kill, lines, prepare, ready, start, until


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("way", ["app", "drop-in", "decorated", "pull"])
def test_each_message_is_handled_or_dead_lettered_exactly_once(
    way: str, kind: str, rabbitmq: Broker, tmp_path: Path
) -> None:
    queue, log = f"job.{way}.{kind}", tmp_path / "runs.log"
    prepare(rabbitmq, queue, kind, age=0.0)
    consumer = start(way, rabbitmq, queue, log)
    try:
        until(lambda: all_ended(rabbitmq, queue, log), 60, "not every message came to its end")
    finally:
        kill(consumer)

    runs: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines(log):
        if line.what == "begin":
            runs[line.body].append(line)
    letters = drain(rabbitmq, f"DLQ.{queue}")
    assert Counter(line.body for line in lines(log) if line.what == "done") == Counter(
        body for body in bodies() if not body.startswith("poison")
    )
    assert Counter(body for body, _ in letters) == Counter(body for body in bodies() if body.startswith("poison"))
    assert ready(rabbitmq, queue) == 0
    for body in bodies():
        assert [run.count for run in runs[body]] == list(range(1, expected_runs(body) + 1))
        for delay, (earlier, later) in zip(DELAYS, pairwise(runs[body]), strict=False):
            assert later.at - earlier.at >= delay, "a retry came too early"
    for _, headers in letters:
        assert (headers["original-destination"], headers["redeliver_original_destination"]) == (queue, queue)
        assert (headers["redeliver_failures"], headers["redeliver_reason"]) == ("4", "exhausted")


def expected_runs(body: str) -> int:
    """Four for a poisonous one (dead after four), as many as it says for one that heals, else one."""
    kind, _, rest = body.partition(":")
    return {"poison": 4, "fine": 1}.get(kind) or int(rest.partition(":")[0])
