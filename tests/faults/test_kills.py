# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumer and broker are killed under load, and every message is accounted for by its id.

What may happen: a message is handled, or dead-lettered, more often than once, when a kill came between the
handler's end and the broker's knowledge of it. What may not: a message that is in neither place, a healthy
one among the dead, a poisonous one among the handled, two different dead letters of one message.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.faults.consumer import PREFETCH
from tests.faults.load import all_ended, bodies, drain, kill, lines, prepare, start, until

CONSUMER_KILLS, BROKER_KILLS = 5, 2


def play(way: str, broker: Broker, queue: str, log: Path) -> None:
    """Kill the consumer five times and the broker twice, each as soon as there was some progress; then let it end."""
    consumer = start(way, broker, queue, log)
    try:
        for n in range(CONSUMER_KILLS):
            wait_for_progress(log, 45)
            if n in (1, 3):
                broker.kill()
                broker.start()
                wait_for_progress(log, 20)
            kill(consumer)
            consumer = start(way, broker, queue, log)
        until(lambda: all_ended(broker, queue, log), 90, "not every message came to its end")
    finally:
        kill(consumer)


def wait_for_progress(log: Path, runs: int) -> None:
    wanted = len(lines(log)) + runs
    until(lambda: len(lines(log)) >= wanted, 60, "the consumer makes no progress")


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "kind", "fixture"),
    [
        ("app", "classic", "rabbitmq310"),
        ("app", "quorum", "rabbitmq43"),
        ("drop-in", "quorum", "rabbitmq310"),
        ("decorated", "classic", "rabbitmq43"),
    ],
)
def test_nothing_is_lost_when_consumer_and_broker_are_killed_under_load(
    way: str, kind: str, fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    if not broker.can_restart:
        pytest.skip("this broker came from the environment and cannot be killed")
    queue, log = f"kills.{way}.{kind}", tmp_path / "runs.log"
    prepare(broker, queue, kind)

    play(way, broker, queue, log)

    handled = Counter(line.body for line in lines(log) if line.what == "done")
    letters = drain(broker, f"DLQ.{queue}")
    dead = Counter(body for body, _ in letters)
    left = Counter(body for body, _ in drain(broker, queue))
    poison = {body for body in bodies() if body.startswith("poison")}
    assert set(bodies()) - handled.keys() - dead.keys() == set(), "lost"
    assert handled.keys() & poison == set()
    assert dead.keys() == poison
    twice = {body: n for body, n in handled.items() if n > 1}
    # A kill can undo at most what was unsettled at that moment: one prefetch window each.
    assert sum(twice.values()) - len(twice) <= PREFETCH * (CONSUMER_KILLS + BROKER_KILLS)
    for body in poison:
        copies = {str(headers["redeliver_copy_id"]) for letter, headers in letters if letter == body}
        assert len(copies) == 1, "a second dead letter must be the same copy, sent again"
    for _, headers in letters:
        assert headers["original-destination"] == queue
        assert headers["redeliver_failures"] == "4"
    print(
        f"\n{way} on {kind}, {broker.describe()}: {len(lines(log))} runs; handled twice: {len(twice)}; "
        f"dead-lettered twice: {sum(n > 1 for n in dead.values())}; left as duplicates: {sum(left.values())}"
    )
